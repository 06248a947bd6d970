# SPDX-License-Identifier: Apache-2.0
"""`stepscope slice`: cut some steps, seconds or ranks out of a run; the part opens like any capture.

Rows that begin inside are kept. Steps have the numbers of the trainer; seconds count from the first event of the run.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from stepscope.cli.options import add_captures, add_rank
from stepscope.cli.show import note

EXAMPLES = """\
  stepscope slice runs/ --step 5:6 --out part           both steps, of all ranks
  stepscope slice runs/ --time 1.2s:1.5s --out part     three tenths of a second
  stepscope slice runs/ --rank 0,3 --out part           two ranks, whole
"""
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "": 1.0}


def configure(parser: argparse.ArgumentParser) -> None:
    add_captures(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--step", "--steps", type=_steps, dest="step", metavar="A[:B]", help="only this step, or A to B; A: and :B are open"
    )
    which.add_argument("--time", type=_times, metavar="A:B", help="from A to B, such as 1.2s:1.5s or 800ms:")
    add_rank(parser)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="new folder")


def run(args: argparse.Namespace) -> int:
    from stepscope.capture import open_all
    from stepscope.share.stores import Part, cut, write_ranks

    captures = [capture for path in args.captures for capture in open_all(path)]
    written = write_ranks(cut(captures, Part(args.step, args.time, tuple(args.rank or ()))), args.out)
    print(f"{args.out}: {', '.join(written)}")
    note(f"next: stepscope verdict {args.out}")
    return 0


def _steps(text: str) -> tuple[int | None, int | None]:
    text = text.replace("-", ":")
    first, colon, last = text.partition(":")
    if not re.fullmatch(r"\d+|\d*:\d*", text) or text == ":":
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of steps such as 5:6")
    start = int(first) if first else None
    return start, (int(last) if last else None) if colon else start


def _times(text: str) -> tuple[float | None, float | None]:
    match = re.fullmatch(r"(?:([\d.]+)(s|ms|us|))?:(?:([\d.]+)(s|ms|us|))?", text)
    try:
        start, end = (None if not match or not match[place] else float(match[place]) * _UNITS[match[place + 1]] for place in (1, 3))
    except ValueError:
        match = None
    if not match or (start is None and end is None):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of time such as 1.2s:1.5s")
    return start, end

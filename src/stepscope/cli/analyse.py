# SPDX-License-Identifier: Apache-2.0
"""`stepscope analyse`: write every documented file of one or more captures."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.options import EXPORTS, add_captures, add_rank, add_source, positive
from stepscope.cli.show import Stages, note, size_text

if TYPE_CHECKING:
    from stepscope.analyser import Result

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_NOTES_SHOWN = 3
EXAMPLES = """\
  stepscope analyse runs/                          every capture in the folder, results inside each
  stepscope analyse runs/ --export text,parquet    other files
  stepscope analyse runs/rank_0 --out results      results elsewhere
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_captures(parser, text="capture folder, PROF_* folder, folder of captures, trace or database")
    parser.add_argument(
        "--export", type=_words, help=f"comma-separated list of {', '.join(EXPORTS)} (default: as the capture was configured)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write results below this folder instead of into the captures")
    parser.add_argument(
        "--jobs",
        type=positive,
        metavar="N",
        help="number of captures to analyse in parallel (default: one per core if all are below 100 MB, else half as many)",
    )
    parser.add_argument(
        "--max-memory", type=_bytes, metavar="SIZE", help="memory limit, such as 4g; packed files that give more are refused"
    )
    add_rank(parser)
    add_source(parser)
    parser.add_argument(
        "--safe-csv",
        action="store_true",
        help="put ' before text cells of csv files that begin with = + - @, which a spreadsheet would run as formulas",
    )


def run(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from stepscope.analyser import Request, analyse_captures, default_jobs, jobs_within
    from stepscope.cli.chosen import chosen_captures

    captures = chosen_captures(args)
    jobs = jobs_within(captures, args.jobs or default_jobs(captures), args.max_memory)
    request = Request(
        exports=args.export,
        out=args.out,
        source=args.source,
        parallel=args.max_memory is None,
        safe_csv=args.safe_csv,
        max_memory=args.max_memory,
    )
    with Stages(len(captures)) as stages:
        request = replace(request, progress=stages.stage)
        results = analyse_captures(captures, request, jobs=jobs, on_result=lambda result: stages.done(Path(result.path).name))
    for result in results:
        _print(result)
    failed = [result for result in results if not result.ok]
    if failed:
        note(f"{len(failed)} of {len(results)} captures failed")
        return 3
    note(f"next: stepscope top {results[0].path}")
    return 0


def _print(result: Result) -> None:
    if not result.ok or result.folder is None:
        note(f"error: {result.path}: {result.error}")
        return
    total = sum((Path(result.folder) / name).stat().st_size for name in result.files)
    print(f"{result.folder}: {len(result.files)} files, {size_text(total)}, {result.seconds:.1f} s")
    for line in result.notes[:_NOTES_SHOWN]:
        note(f"  {line}")
    if len(result.notes) > _NOTES_SHOWN:
        note(f"  {len(result.notes) - _NOTES_SHOWN} more notes: stepscope info {result.path}")


def _words(text: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [word for word in words if word not in EXPORTS]
    if unknown or not words:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown) or 'nothing'} is not one of {', '.join(EXPORTS)}")
    return words


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)i?b?", text.strip().lower())
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 800m or 4g")
    return int(float(match[1]) * _UNITS[match[2]])

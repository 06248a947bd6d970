# SPDX-License-Identifier: Apache-2.0
"""`stepscope whatif`: how long a step would be if something took more or less time, or did not happen."""

from __future__ import annotations

import argparse
from pathlib import Path

import orjson

from stepscope.capture import SOURCES, open_all
from stepscope.verdict.what_if import WITHOUT, what_if


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("capture", type=Path, metavar="PATH", help="capture, or folder with the captures of all ranks")
    parser.add_argument(
        "--scale", action="append", default=[], metavar="CHANGE",
        help="kernel~PATTERN=FACTOR, op~PATTERN=FACTOR, collective=FACTOR or copy=FACTOR; repeat for more",
    )  # fmt: skip
    parser.add_argument("--without", type=_words, default=(), metavar="A,B", help=f"leave out some of {', '.join(WITHOUT)}")
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of text")
    parser.add_argument(
        "--source", choices=SOURCES, default="auto", help="which data to read if a capture has several kinds (default: auto)"
    )


def run(args: argparse.Namespace) -> int:
    for capture in open_all(args.capture, source=args.source):
        tables = capture.tables
        found = what_if(tables, scale=args.scale, without=args.without)
        rank = tables.facts.rank
        if args.json:
            print(orjson.dumps({"rank": rank if rank >= 0 else None, **found.as_dict()}).decode())
            continue
        head = f"rank {rank}: " if rank >= 0 else ""
        doubt = f" (± {found.then_ms * found.error:.1f})" if found.error >= 0.001 else ""
        print(f"{head}{found.then_ms:.1f} ms a step, now {found.now_ms:.1f}{doubt}")
        if found.bottleneck:
            print(f"  then first: {found.bottleneck}, {found.bottleneck_share:.0%} of the critical path")
    return 0


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())

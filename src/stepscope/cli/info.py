# SPDX-License-Identifier: Apache-2.0
"""`stepscope info`: what is in a capture, per rank: steps, switches, sizes, quality."""

from __future__ import annotations

import argparse
from pathlib import Path

import orjson

from stepscope.capture import SOURCES, open_all
from stepscope.cli.show import note, show, size_text
from stepscope.report import Overview, overview, same_ranks


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("capture", type=Path, metavar="PATH", help="capture folder, folder of captures, trace or database")
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of text")
    parser.add_argument("--source", choices=SOURCES, default="auto", help="what to read when a capture has several forms")


def run(args: argparse.Namespace) -> int:
    overviews = [overview(capture) for capture in open_all(args.capture, source=args.source)]
    for item in overviews:
        if args.json:
            print(orjson.dumps(item.as_dict()).decode())
        else:
            _print(item)
    for rank, paths in same_ranks(overviews).items():
        note(f"warning: rank {rank} occurs {len(paths)} times: {', '.join(paths)}")
    return 0


def _print(item: Overview) -> None:
    print(f"{item.path}")
    for label, text in item.lines():
        print(f"  {label:<10} {text}")
    print(f"  {'size':<10} {size_text(item.source_bytes)} in {item.source_files} files")
    print(f"  {'rows':<10} {', '.join(f'{name} {rows:,}' for name, rows in item.rows.items())}")
    if item.quality.height:
        print(f"  {'quality':<10} {int(item.quality['count'].sum()):,} records lost or not understood:")
        show(item.quality, as_json=False)
    else:
        print(f"  {'quality':<10} nothing lost")

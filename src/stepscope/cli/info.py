# SPDX-License-Identifier: Apache-2.0
"""`stepscope info`: show what a capture contains, per rank: steps, switches, sizes, data quality."""

from __future__ import annotations

import argparse
from pathlib import Path

import orjson

from stepscope.analysis import quality
from stepscope.capture import SOURCES, open_all
from stepscope.cli.show import note, size_text
from stepscope.errors import CaptureError
from stepscope.native.codec import describe_codec
from stepscope.report import Overview, overview, same_ranks
from stepscope.tables.issues import Language

_SEVERITIES = {"loss": ("loss", "丢失"), "warning": ("warning", "警告"), "note": ("note", "说明")}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("capture", type=Path, metavar="PATH", help="capture folder, folder of captures, trace or database")
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of text")
    parser.add_argument(
        "--source", choices=SOURCES, default="auto", help="which data to read if a capture has several kinds (default: auto)"
    )
    parser.add_argument("--lang", choices=("en", "zh"), default="en", help="language of the lines about data quality (default: en)")


def run(args: argparse.Namespace) -> int:
    overviews, failed = [], 0
    for capture in open_all(args.capture, source=args.source):
        try:
            overviews.append(overview(capture))
        except CaptureError as problem:  # the others are shown all the same
            note(f"error: {problem}")
            failed += 1
    for item in overviews:
        if args.json:
            print(orjson.dumps({**item.as_dict(), "engine": describe_codec()}).decode())
        else:
            _print(item, args.lang)
    for rank, paths in same_ranks(overviews).items():
        note(f"warning: rank {rank} occurs {len(paths)} times: {', '.join(paths)}")
    return 3 if failed else 0


def _print(item: Overview, language: Language) -> None:
    first = quality.headline(item.quality, language)
    print(f"{item.path}: {first}" if first else item.path)
    for label, text in item.lines():
        print(f"  {label:<10} {text}")
    print(f"  {'size':<10} {size_text(item.source_bytes)} in {item.source_files} files")
    print(f"  {'rows':<10} {', '.join(f'{name} {rows:,}' for name, rows in item.rows.items())}")
    print(f"  {'engine':<10} {describe_codec()}")
    print(f"  {'quality':<10} {quality.summary(item.quality, language)}")
    for found in quality.occurrences(item.quality):
        severity = _SEVERITIES[found.issue.severity][language == "zh"]
        print(f"    {severity:<8} {found.sentence(language)} [{found.where()}]")

# SPDX-License-Identifier: Apache-2.0
"""`stepscope info`: show what a capture contains, per rank: steps, switches, sizes, data quality."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from stepscope.cli.options import LANGUAGES, add_captures, add_json, add_out, add_rank, add_source
from stepscope.cli.show import note, results_in, size_text

if TYPE_CHECKING:
    from stepscope.report import Overview
    from stepscope.tables.issues import Language

_SEVERITIES = {"loss": ("loss", "丢失"), "warning": ("warning", "警告"), "note": ("note", "说明")}

EXAMPLES = """\
  stepscope info runs/                   every capture in the folder: ranks, steps, what was recorded, what was lost
  stepscope info runs/rank_0 --json      one JSON object per capture
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_captures(parser, text="capture folder, folder of captures, trace or database")
    add_json(parser, "text")
    add_out(parser)
    add_rank(parser)
    add_source(parser)
    parser.add_argument("--lang", choices=LANGUAGES, help="language of the lines about data quality (default: that of the locale)")


def run(args: argparse.Namespace) -> int:
    import orjson

    from stepscope.cli.chosen import chosen_captures
    from stepscope.errors import CaptureError
    from stepscope.language import language
    from stepscope.native.codec import describe_codec
    from stepscope.report import overview, same_ranks

    overviews, code = [], 0
    for capture in chosen_captures(args):
        try:
            overviews.append(overview(capture))
        except CaptureError as problem:  # the others are shown all the same
            note(f"error: {problem}")
            code = max(code, 3)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as problem:  # noqa: BLE001 - a border, as of analyses; a panic of the columnar engine is not an Exception
            note(f"error: {capture.path}: {type(problem).__name__}: {problem}; this is a bug in stepscope, please report it")
            code = 70
    with results_in(args.out):
        for item in overviews:
            if args.json:
                print(orjson.dumps({**item.as_dict(), "engine": describe_codec()}).decode())
            else:
                _print(item, "zh" if language(args.lang) == "zh" else "en")
    for rank, paths in same_ranks(overviews).items():
        note(f"warning: rank {rank} occurs {len(paths)} times: {', '.join(paths)}")
    note(f"engine: {describe_codec()}")
    return code


def _print(item: Overview, language: Language) -> None:
    from stepscope.analysis import quality

    first = quality.headline(item.quality, language)
    print(f"{item.path}: {first}" if first else item.path)
    for label, text in item.lines():
        print(f"  {label:<10} {text}")
    print(f"  {'size':<10} {size_text(item.source_bytes)} in {item.source_files} files")
    print(f"  {'rows':<10} {', '.join(f'{name} {rows:,}' for name, rows in item.rows.items())}")
    print(f"  {'quality':<10} {quality.summary(item.quality, language)}")
    for found in quality.occurrences(item.quality):
        severity = _SEVERITIES[found.issue.severity][language == "zh"]
        print(f"    {severity:<8} {found.sentence(language)} [{found.where()}]")

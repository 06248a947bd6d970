# SPDX-License-Identifier: Apache-2.0
"""`stepscope convert`: write captures in the form of another program."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.cli.options import FORMS, add_captures, add_rank, add_source

EXAMPLES = """\
  stepscope convert runs/ --to perfetto --out traces        for ui.perfetto.dev
  stepscope convert runs/ --to speedscope --rank 0          for speedscope.app: calls of each thread
  stepscope convert trace.json --to parquet                 for notebooks
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_captures(parser)
    parser.add_argument("--to", choices=FORMS, required=True, help="which form")
    parser.add_argument("-o", "--out", type=Path, default=Path(), metavar="DIR", help="folder to write to (default: this one)")
    add_rank(parser)
    add_source(parser)


def run(args: argparse.Namespace) -> int:
    from stepscope.cli.chosen import chosen_captures
    from stepscope.share.convert import convert
    from stepscope.share.stores import rank_names

    tables = [capture.tables for capture in chosen_captures(args)]
    for one, name in zip(tables, rank_names(tables), strict=True):
        print(convert(one, args.to, args.out, name))
    return 0

# SPDX-License-Identifier: Apache-2.0
"""`stepscope pack`: put captures into one file with checksums, if wanted without names of people, machines and paths.

Other commands open the file as it is. With --redact only the tables are packed: raw records would hold the names.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.cli.options import PACKED, REDACTIONS, add_captures, add_rank, words_of
from stepscope.cli.show import note, size_text

EXAMPLES = """\
  stepscope pack runs/ --out run.tar.zst                              all ranks, as they were recorded
  stepscope pack runs/ --out run.tar.zst --redact all                 without paths, hosts, stacks and metadata
  stepscope pack runs/ --out run.tar.zst --what store --rank 0        the tables of one rank only
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_captures(parser)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="file to write, *.tar.zst")
    parser.add_argument(
        "--what", type=words_of(PACKED), default=("raw", "text"), metavar="A,B", help=f"of {', '.join(PACKED)} (default: raw,text)"
    )
    parser.add_argument(
        "--redact",
        type=words_of(REDACTIONS, everything="all"),
        default=(),
        metavar="A,B",
        help=f"names to take out: {', '.join(REDACTIONS)}, or all",
    )
    add_rank(parser)


def run(args: argparse.Namespace) -> int:
    from stepscope.cli.chosen import chosen_captures
    from stepscope.share.pack import pack

    done = pack(chosen_captures(args), args.out, what=args.what, redact=args.redact)
    print(f"{done.path}: {done.captures} captures, {size_text(done.bytes_before)} in {size_text(done.bytes_after)}")
    if args.redact:
        note(f"without {', '.join(args.redact)}; tables only, no raw data")
    note(f"next: stepscope view {done.path}")
    return 0

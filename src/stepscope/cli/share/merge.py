# SPDX-License-Identifier: Apache-2.0
"""`stepscope merge`: put captures of one run into one folder, a rank each; it opens like any run.

Captures of the same rank are joined where they follow one another. Clocks stay as recorded; stepscope cluster aligns them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.cli.options import add_captures
from stepscope.cli.show import note

EXAMPLES = """\
  stepscope merge node0/ node1/ --out run            the ranks of both machines
  stepscope merge first/ second/ --out longer        two windows of the same ranks
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_captures(parser)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="new folder")


def run(args: argparse.Namespace) -> int:
    from stepscope.capture import open_all
    from stepscope.share.stores import join, write_ranks

    written = write_ranks(join([capture for path in args.captures for capture in open_all(path)]), args.out)
    print(f"{args.out}: {', '.join(written)}")
    note(f"next: stepscope verdict {args.out}")
    return 0

# SPDX-License-Identifier: Apache-2.0
"""`stepscope unpack`: put the captures of a pack into a folder, each file checked."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.cli.show import note, size_text

EXAMPLES = """\
  stepscope unpack run.tar.zst                 into the new folder run
  stepscope unpack run.tar.zst --out runs/a    into another one
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pack", type=Path, metavar="PACK", help="file of stepscope pack")
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help="new folder (default: the name of the pack)")


def run(args: argparse.Namespace) -> int:
    from stepscope.share.unpack import unpack_into

    folder, content = unpack_into(args.pack, args.out)
    size = sum(size for size, _ in content["files"].values())
    print(f"{folder}: {len(content['files'])} files, {size_text(size)}")
    note(f"next: stepscope verdict {folder}")
    return 0

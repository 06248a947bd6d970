# SPDX-License-Identifier: Apache-2.0
"""`stepscope publish`: put key figures and the report of a run into an experiment tracker."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.cli.options import REDACTIONS, TRACKERS, words_of

EXAMPLES = """\
  stepscope publish runs/ --to wandb                          figures and report, into the active or a new run
  stepscope publish runs/ --to mlflow --pack --redact all     with the capture, names taken out
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="capture, or folder with the captures of all ranks")
    parser.add_argument("--to", choices=TRACKERS, required=True, help="which tracker")
    parser.add_argument("--pack", action="store_true", help="attach the captures as one file")
    parser.add_argument(
        "--redact",
        type=words_of(REDACTIONS, everything="all"),
        default=(),
        metavar="A,B",
        help=f"names to take out: {', '.join(REDACTIONS)}, or all",
    )


def run(args: argparse.Namespace) -> int:
    from stepscope.share.publish import publish

    print(publish(args.path, args.to, with_pack=args.pack, redact=args.redact))
    return 0

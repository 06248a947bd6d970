# SPDX-License-Identifier: Apache-2.0
"""`stepscope report`: write a run as one HTML file that opens anywhere, offline."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.cli.show import note, size_text

EXAMPLES = """\
  stepscope report runs/                       report.html with all runs in the folder
  stepscope report runs/today --out today.html
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="folder of runs, capture folder, trace or database")
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="file to write (default: report.html)"
    )
    parser.add_argument(
        "--workers", type=int, default=8, metavar="N", help="number of workers per run to show in detail (default: 8)"
    )


def run(args: argparse.Namespace) -> int:
    # Imported here, because other commands start faster without the viewer.
    from stepscope.capture import folder_of
    from stepscope.web.html_report.page import html, runs
    from stepscope.web.html_report.write import write

    found = runs([folder_of(path) for path in args.paths])
    size = write(html(found, most_workers=max(1, args.workers)), args.out)
    for run_ in found:
        for worker, why in run_.missing:
            note(f"left out: {run_.name}: {worker}: {why}")
    print(f"{args.out}: {sum(len(run_.ready) for run_ in found)} captures, {size_text(size)}")
    note(f"next: open {args.out}, or stepscope view {args.paths[0]} for everything in it")
    return 0

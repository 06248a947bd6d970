# SPDX-License-Identifier: Apache-2.0
"""`stepscope report`: a run as one HTML file that opens anywhere, offline."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.cli.show import note, size_text


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="folder of runs, capture folder, trace or database")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="file to write (default: report.html)")
    parser.add_argument("--workers", type=int, default=8, help="workers of a run shown in detail (default: 8)")


def run(args: argparse.Namespace) -> int:
    # Here, because the other commands start faster without the viewer.
    from stepscope.web.html_report.page import html, runs
    from stepscope.web.html_report.write import write

    made = runs(args.paths)
    size = write(html(made, most_workers=max(1, args.workers)), args.out)
    for one in made:
        for worker, why in one.missing:
            note(f"left out: {one.name}: {worker}: {why}")
    print(f"{args.out}: {sum(len(one.ready) for one in made)} captures, {size_text(size)}")
    note(f"next: open {args.out}, or stepscope view {args.paths[0]} for everything in it")
    return 0

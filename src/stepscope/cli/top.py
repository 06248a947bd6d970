# SPDX-License-Identifier: Apache-2.0
"""`stepscope top`: show where the time goes, by operator, kernel, API call, module, step or mark."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.analysis import quality
from stepscope.capture import SOURCES, open_capture
from stepscope.cli.show import note, show
from stepscope.report import TOP, tasks_left_out, top


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("capture", type=Path, metavar="PATH", help="capture folder, trace or database")
    parser.add_argument("--by", choices=list(TOP), default="op", help="what to group time by (default: op)")
    parser.add_argument(
        "--all-tasks",
        action="store_true",
        help="with --by kernel: also waits, notifications and the link-level tasks of communication operators",
    )
    parser.add_argument("--limit", type=int, default=20, help="number of rows to show, 0 for all (default: 20)")
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of a table")
    parser.add_argument(
        "--source", choices=SOURCES, default="auto", help="which data to read if a capture has several kinds (default: auto)"
    )


def run(args: argparse.Namespace) -> int:
    capture = open_capture(args.capture, source=args.source)
    frame = top(capture.tables, by=args.by, all_tasks=args.all_tasks)
    shown = frame.head(args.limit) if args.limit > 0 else frame
    if args.json and not quality.complete(capture.tables.quality):
        shown = shown.with_columns(complete=False)
    show(shown, as_json=args.json, title=f"{capture.path.name}: by {args.by}")
    if shown.height < frame.height and not args.json:
        note(f"{frame.height - shown.height} more rows: --limit 0")
    elif not frame.height:
        note(f"nothing to show with --by {args.by}: the capture has no such records")
    if args.by == "kernel" and not args.all_tasks and not args.json:
        left_out = tasks_left_out(capture.tables)
        if left_out:
            note(f"{left_out} waits and tasks inside communication operators are left out: --all-tasks")
    return 0

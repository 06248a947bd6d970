# SPDX-License-Identifier: Apache-2.0
"""`stepscope top`: show where the time goes, by operator, kernel, API call, module, step, mark or rank."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from stepscope.analysis import quality
from stepscope.capture import SOURCES, Capture, open_all
from stepscope.cli.show import note, show
from stepscope.errors import CaptureError
from stepscope.top import RANK_LESSER, TOP, tasks_left_out, top


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("captures", type=Path, nargs="+", metavar="PATH", help="capture, or folder with the captures of all ranks")
    parser.add_argument("--by", choices=[*TOP, "rank"], default="op", help="what to group time by (default: op)")
    parser.add_argument(
        "--rank", type=int, action="append", metavar="N", help="only this rank; repeat for more (default: the sum of all)"
    )
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
    captures = _chosen([capture for path in args.captures for capture in open_all(path, source=args.source)], args)
    tables = [capture.tables for capture in captures]
    frame = top(tables, by=args.by, all_tasks=args.all_tasks)
    shown = frame.head(args.limit) if args.limit > 0 else frame
    if args.json and not all(quality.complete(each.quality) for each in tables):
        shown = shown.with_columns(complete=False)
    lesser = RANK_LESSER if args.by == "rank" else TOP[args.by].lesser
    show(shown, as_json=args.json, title=_title(captures, args.by), lesser=lesser)
    if args.json:
        return 0
    if shown.height < frame.height:
        note(f"{frame.height - shown.height} more rows: --limit 0")
    elif not frame.height:
        note(f"nothing to show with --by {args.by}: the capture has no such records")
    if args.by == "kernel" and not args.all_tasks:
        left_out = tasks_left_out(tables)
        if left_out:
            note(f"{left_out} waits and tasks inside communication operators are left out: --all-tasks")
    return 0


def _chosen(captures: list[Capture], args: argparse.Namespace) -> list[Capture]:
    ranks = [capture.facts.rank for capture in captures] if args.rank or len(captures) > 1 else []
    if args.rank:
        absent = sorted(set(args.rank) - set(ranks))
        if absent:
            raise CaptureError(
                f"no capture of rank {', '.join(map(str, absent))}",
                where=", ".join(map(str, args.captures)),
                cause=f"ranks here: {', '.join(str(rank) for rank in sorted(set(ranks)) if rank >= 0) or 'none known'}",
                fix="leave --rank out for the sum of all, or name one of these",
            )
        captures = [capture for capture, rank in zip(captures, ranks, strict=True) if rank in args.rank]
    twice = sorted(rank for rank, times in Counter(capture.facts.rank for capture in captures).items() if rank >= 0 and times > 1)
    if len(captures) > 1 and twice:
        note(f"several captures of rank {', '.join(map(str, twice))}: all are counted; name one capture for one run")
    return captures


def _title(captures: Sequence[Capture], by: str) -> str:
    if len(captures) == 1:
        return f"{captures[0].path.name}: by {by}"
    return f"{len(captures)} captures: by {by}" + ("" if by in ("step", "rank") else ", sum of all")

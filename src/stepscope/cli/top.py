# SPDX-License-Identifier: Apache-2.0
"""`stepscope top`: show where the time goes, by operator, kernel, API call, module, step, mark or rank."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepscope.cli.options import GROUPINGS, add_captures, add_json, add_out, add_rank, add_source, add_step
from stepscope.cli.show import note, results_in, show

if TYPE_CHECKING:
    from stepscope.capture import Capture

EXAMPLES = """\
  stepscope top runs/                        operators, most device time first
  stepscope top runs/ --by kernel --limit 50
  stepscope top runs/ --by rank              one row per rank
  stepscope top runs/ --step 7:9             of these steps alone
  stepscope top runs/ --by step --json       JSON lines for a script
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_captures(parser)
    parser.add_argument("--by", choices=GROUPINGS, default="op", help="what to group time by (default: op)")
    add_rank(parser, "the sum of all")
    add_step(parser)
    parser.add_argument(
        "--all-tasks",
        action="store_true",
        help="with --by kernel: also waits, notifications and the link-level tasks of communication operators",
    )
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="number of rows to show, 0 for all (default: 20)")
    add_json(parser)
    add_out(parser)
    add_source(parser)


def run(args: argparse.Namespace) -> int:
    from stepscope.analysis import quality
    from stepscope.analysis.step_range import rows_of_steps
    from stepscope.cli.chosen import chosen_captures
    from stepscope.top import RANK_LESSER, TOP, tasks_left_out, top

    captures = chosen_captures(args)
    _note_repeated_ranks(captures)
    tables = [rows_of_steps(capture.tables, *args.step) if args.step else capture.tables for capture in captures]
    frame = top(tables, by=args.by, all_tasks=args.all_tasks)
    shown = frame.head(args.limit) if args.limit > 0 else frame
    if args.json and not all(quality.complete(each.quality) for each in tables):
        shown = shown.with_columns(complete=False)
    lesser = RANK_LESSER if args.by == "rank" else TOP[args.by].lesser
    with results_in(args.out):
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


def _note_repeated_ranks(captures: Sequence[Capture]) -> None:
    if len(captures) == 1:
        return
    twice = sorted(rank for rank, times in Counter(capture.facts.rank for capture in captures).items() if rank >= 0 and times > 1)
    if twice:
        note(f"several captures of rank {', '.join(map(str, twice))}: all are counted; name one capture for one run")


def _title(captures: Sequence[Capture], by: str) -> str:
    if len(captures) == 1:
        return f"{captures[0].path.name}: by {by}"
    return f"{len(captures)} captures: by {by}" + ("" if by in ("step", "rank") else ", sum of all")

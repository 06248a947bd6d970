# SPDX-License-Identifier: Apache-2.0
"""The captures that a command is about: those at its paths, of the ranks that `--rank` names and the steps of `--step`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from stepscope.analysis.step_range import numbered
from stepscope.capture import Capture, open_all
from stepscope.errors import CaptureError
from stepscope.tables import Tables


def chosen_captures(args: argparse.Namespace) -> list[Capture]:
    """Captures at `args.captures`, of the ranks in `args.rank`, read from `args.source` where the command has that option.

    Raises:
        CaptureError: a path holds no capture, or there is none of a rank.
    """
    return captures_at(args.captures, source=getattr(args, "source", "auto"), ranks=args.rank or ())


def captures_at(paths: Sequence[Path], *, source: str = "auto", ranks: Sequence[int] = ()) -> list[Capture]:
    """Captures at some paths, of these ranks or of all.

    Raises:
        CaptureError: a path holds no capture, or there is none of a rank.
    """
    captures = [capture for path in paths for capture in open_all(path, source=source)]
    if not ranks:
        return captures
    there = [capture.facts.rank for capture in captures]
    absent = sorted(set(ranks) - set(there))
    if absent:
        raise CaptureError(
            f"no capture of rank {', '.join(map(str, absent))}",
            where=", ".join(map(str, paths)),
            cause=f"ranks here: {', '.join(str(rank) for rank in sorted(set(there)) if rank >= 0) or 'none known'}",
            fix="leave --rank out for all, or name one of these",
        )
    return [capture for capture, rank in zip(captures, there, strict=True) if rank in ranks]


def chosen_tables(args: argparse.Namespace) -> Iterator[Tables]:
    """The tables of each of these captures, with the steps of `args.step` alone; row numbers stay those of the capture.

    Raises:
        CaptureError: as `chosen_captures`, or a capture has none of the steps.
    """
    for capture in chosen_captures(args):
        yield numbered(capture.tables, *args.step) if args.step else capture.tables

# SPDX-License-Identifier: Apache-2.0
"""The captures that a command is about: those at its paths, of the ranks that `--rank` names."""

from __future__ import annotations

import argparse

from stepscope.capture import Capture, open_all
from stepscope.errors import CaptureError


def chosen_captures(args: argparse.Namespace) -> list[Capture]:
    """Captures at `args.captures`, of the ranks in `args.rank`, read from `args.source` where the command has that option.

    Raises:
        CaptureError: a path holds no capture, or there is none of a rank.
    """
    captures = [capture for path in args.captures for capture in open_all(path, source=getattr(args, "source", "auto"))]
    if not args.rank:
        return captures
    ranks = [capture.facts.rank for capture in captures]
    absent = sorted(set(args.rank) - set(ranks))
    if absent:
        raise CaptureError(
            f"no capture of rank {', '.join(map(str, absent))}",
            where=", ".join(map(str, args.captures)),
            cause=f"ranks here: {', '.join(str(rank) for rank in sorted(set(ranks)) if rank >= 0) or 'none known'}",
            fix="leave --rank out for all, or name one of these",
        )
    return [capture for capture, rank in zip(captures, ranks, strict=True) if rank in args.rank]

# SPDX-License-Identifier: Apache-2.0
"""Parts of captures and several of them together, as folders of tables that open like any capture."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stepscope.analysis.step_range import between
from stepscope.capture import Capture
from stepscope.errors import CaptureError
from stepscope.tables import Tables, issues, lost
from stepscope.tables.store import write_store
from stepscope.tables.union import union
from stepscope.tables.whole_folder import replacing_folder

Range = tuple[int | None, int | None]  # both ends inclusive for steps; None is open


@dataclass(frozen=True)
class Part:
    """Which rows of a run to keep."""

    steps: Range | None = None  # numbers of the steps as the trainer counts them
    seconds: tuple[float | None, float | None] | None = None  # from the first event of the run
    ranks: tuple[int, ...] = ()


def write_ranks(ranks: Sequence[Tables], target: Path) -> list[str]:
    """Each set of tables as a store below the new folder `target`; the names of their folders."""
    refuse_existing(target)
    names = rank_names(ranks)
    with replacing_folder(target) as new:
        for name, tables in zip(names, ranks, strict=True):
            write_store(new / name, tables, [])
    return names


def rank_names(ranks: Sequence[Tables]) -> list[str]:
    """`rank_3` where the rank is known and there once, else a number in the order of the captures."""
    known = [tables.facts.rank for tables in ranks]
    return [f"rank_{rank}" if rank >= 0 and known.count(rank) == 1 else f"capture_{number}" for number, rank in enumerate(known, 1)]


def cut(captures: Sequence[Capture], part: Part) -> list[Tables]:
    """The rows of a run that begin inside the part, with the references between tables kept right.

    Raises:
        CaptureError: nothing of the run lies inside.
    """
    chosen = [capture.tables for capture in captures if not part.ranks or capture.facts.rank in part.ranks]
    if not chosen:
        known = sorted({capture.facts.rank for capture in captures})
        raise CaptureError(
            f"no capture of rank {', '.join(map(str, part.ranks))}",
            cause=f"ranks here: {', '.join(map(str, known))}",
            fix="name one of these",
        )
    if part.steps is not None:
        return [_of_steps(tables, part.steps) for tables in chosen]
    if part.seconds is not None:
        first = min(_first_moment(tables) for tables in chosen)
        start, end = (None if moment is None else first + round(moment * 1e9) for moment in part.seconds)
        start, end = first if start is None else start, 2**63 - 1 if end is None else end
        cut_out = [_noted(between(tables, start, end), f"{(start - first) / 1e9:g} s and later") for tables in chosen]
        if not any(tables.ops.height or tables.kernels.height for tables in cut_out):
            raise CaptureError("nothing was recorded in this time", fix="times count from the first event of the run: --time 0s:1s")
        return cut_out
    return chosen


def _of_steps(tables: Tables, steps: Range) -> Tables:
    first, last = steps
    wanted = tables.steps.filter(
        (pl.lit(first is None) | (pl.col("step") >= (first or 0))) & (pl.lit(last is None) | (pl.col("step") <= (last or 0)))
    )
    if not wanted.height:
        known = tables.steps["step"].to_list()
        raise CaptureError(
            f"no step from {'the first' if first is None else first} to {'the last' if last is None else last} was recorded",
            cause=f"steps here: {min(known)} to {max(known)}" if known else "the capture has no steps",
            fix="stepscope top RUN --by step lists them",
        )
    start, end = wanted.select(
        pl.min_horizontal("start_ns", "device_start_ns").min(), pl.max_horizontal("end_ns", "device_end_ns").max()
    ).row(0)
    # Tasks of the device may begin after the next step has: rows of other steps in `steps` itself are left out.
    part = between(tables, start, end)
    kept = part.steps.filter(pl.col("step").is_in(wanted["step"].to_list()))
    numbers = wanted["step"].to_list()
    return _noted(part.replace(steps=kept), f"steps {min(numbers)} to {max(numbers)} of {tables.steps.height}")


def _noted(tables: Tables, detail: str) -> Tables:
    return tables.with_quality(lost(issues.PART_OF_CAPTURE, "slice", 1, detail))


def _first_moment(tables: Tables) -> int:
    """The first thing that happened, on host or device."""
    starts = _moments(tables, "start_ns")
    if not starts:
        raise CaptureError("the capture has neither operators nor tasks nor steps: there is no time to cut")
    return min(starts)


def _moments(tables: Tables, column: str) -> list[int]:
    """Least and greatest time of each table that has any."""
    frames = [
        tables[name].select(pl.col(column).min().alias("least"), pl.col(column).max()) for name in ("ops", "kernels", "steps")
    ]
    return [time for frame in frames for time in frame.row(0) if time is not None]


def join(captures: Sequence[Capture]) -> list[Tables]:
    """One set of tables per rank. Captures of one rank are joined where they follow one another.

    Raises:
        CaptureError: two captures of one rank cover the same time.
    """
    by_rank: defaultdict[tuple[int, str], list[Capture]] = defaultdict(list)
    for capture in captures:
        rank = capture.facts.rank
        by_rank[rank, "" if rank >= 0 else str(capture.path)].append(capture)  # of unknown rank: each for itself
    joined = []
    for (rank, _), same in sorted(by_rank.items()):
        parts = sorted(same, key=lambda capture: _first_moment(capture.tables))
        for before, after in itertools.pairwise(parts):
            if _last_moment(before.tables) > _first_moment(after.tables):
                raise CaptureError(
                    f"rank {rank} was recorded twice at the same time",
                    where=f"{before.path} and {after.path}",
                    cause="they belong to two runs, or to two nodes that number their ranks alike",
                    fix="merge the captures of one run only",
                )
        joined.append(union([part.tables for part in parts]))
    return joined


def _last_moment(tables: Tables) -> int:
    return max(_moments(tables, "end_ns"))


def refuse_existing(target: Path) -> None:
    if target.exists():
        raise CaptureError("the output is there already", where=str(target), fix="name a new folder, or remove this one")

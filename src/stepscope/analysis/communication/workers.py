# SPDX-License-Identifier: Apache-2.0
"""Computing and communication of all workers of a run beside each other, and who holds the others up.

Steps are given by number; null stands for the mean of all steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from stepscope.analysis.communication.collectives import stepped_tables
from stepscope.analysis.step_time import step_times
from stepscope.analysis.steps import steps_of_tasks
from stepscope.tables import Tables

CAUSES = ("long compute before communication", "slow link", "late start")
MOST_OPERATORS = 5


@dataclass(frozen=True)
class MeanStep:
    """Where a mean step of a worker went, in ns; the first four add up to it."""

    computing: float  # without overlapped
    overlapped: float
    exposed: float
    free: float
    bubble: float
    preparing: float

    @property
    def whole(self) -> float:
        return self.computing + self.overlapped + self.exposed + self.free


def mean_step(steps: pl.DataFrame, step: int | None = None) -> MeanStep | None:
    """The mean over the rows of `step_times`, of one step or of all; None when there is no row."""
    rows = steps if step is None else steps.filter(pl.col("step") == step)
    if not rows.height:
        return None
    alone = pl.col("computing_ns") - pl.col("overlapped_ns")
    means = rows.select(alone, "overlapped_ns", "not_overlapped_ns", "free_ns", "bubble_ns", "preparing_ns").mean()
    return MeanStep(*(float(value or 0) for value in means.row(0)))


def collective_parts(times: pl.DataFrame, step: int | None = None) -> list[float] | None:
    """What the collectives of a mean step took in us: moving data, synchronizing, other waiting, idle; in sum the elapsed time.

    Args:
        times: `stepped(…, "collective_times")`.
        step: one step instead of the mean.
    """
    rows = times if step is None else times.filter(pl.col("step") == f"step{step}")
    if not rows.height:
        return None
    sums = rows.group_by("step").agg(pl.col("transit_ms", "sync_ms", "wait_ms", "idle_ms").fill_null(0.0).sum())
    means = sums.select("transit_ms", "sync_ms", pl.col("wait_ms") - pl.col("sync_ms"), "idle_ms").mean()
    return [float(value or 0) * 1000 for value in means.row(0)]


def collectives_over_time(workers: Mapping[str, Tables]) -> pl.DataFrame:
    """Communication operators of all workers by start: worker, name, start_ns (on the clock of its host), duration_us."""
    parts = [
        tables.collectives.select(
            pl.lit(worker).alias("worker"), pl.col("name").cast(pl.String), "start_ns", duration_us=_length() / 1000.0
        )
        for worker, tables in workers.items()
    ]
    return pl.concat(parts).sort("start_ns", maintain_order=True) if parts else pl.DataFrame()


def matched_collectives(workers: Mapping[str, Tables]) -> dict[str, pl.DataFrame]:
    """Collectives of each worker: step, and in us length and `shortest`, that of the fastest worker: what moving the data took.

    The n-th collective of a type and group on one worker is the n-th on the others.
    """
    parts = []
    for worker, tables in workers.items():
        rows = tables.collectives
        step = steps_of_tasks(tables, rows)
        key = [pl.col("op_type").cast(pl.String), pl.col("group").cast(pl.String)]
        listed = rows.select(*key, (_length() / 1000.0).alias("length")).with_columns(step, worker=pl.lit(worker))
        parts.append(listed.with_columns(turn=pl.int_range(pl.len()).over("op_type", "group")))
    joined = pl.concat(parts)
    shortest = pl.col("length").min().over("op_type", "group", "turn")
    return {str(worker): part for (worker,), part in joined.with_columns(shortest=shortest).group_by("worker")}


def matched_parts(rows: pl.DataFrame | None, step: int | None = None) -> list[float] | None:
    """As `collective_parts`, of one worker's `matched_collectives`: what is longer than the shortest was synchronizing."""
    if rows is None:
        return None
    rows = rows if step is None else rows.filter(pl.col("step") == step)
    if not rows.height:
        return None
    steps = max(1, rows["step"].drop_nulls().n_unique())
    moved, whole = float(rows["shortest"].sum()) / steps, float(rows["length"].sum()) / steps
    return [moved, whole - moved, 0.0, 0.0]


def collectives_by_kind(tables: Tables, step: int | None = None) -> pl.DataFrame:
    """One row per kind of operator of the vendor's analysis: name, calls, size in bytes, elapse and transit in us."""
    times, packets = stepped_tables(tables, "collective_times", "collective_packets")
    if step is not None:
        times, packets = (frame.filter(pl.col("step") == f"step{step}") for frame in (times, packets))
    # SDMA already holds HCCS, PCIE and SIO, and a MB is 10^6 bytes (docs/formats/outputs.md 9).
    moved = packets.filter(pl.col("transport").cast(pl.String).is_in(["RDMA", "SDMA"]))
    moved = moved.unique(["collective", "name", "group", "step", "transport"], keep="first")
    sizes = moved.group_by(_kind()).agg(size=(pl.col("transit_mb").sum() * 1e6).round())
    elapsed = times.group_by(_kind()).agg(
        pl.len().cast(pl.Int64).alias("calls"), elapse=pl.col("elapse_ms").sum() * 1000, transit=pl.col("transit_ms").sum() * 1000
    )
    return elapsed.join(sizes, on="name", how="left").with_columns(pl.col("size").fill_null(0.0))


def collectives_by_type(tables: Tables, step: int | None = None) -> pl.DataFrame:
    """As `collectives_by_kind`, from the collectives themselves; they only tell how long they took in all."""
    rows = tables.collectives
    if step is not None:
        rows = rows.filter(steps_of_tasks(tables, rows) == step)
    length = _length().sum() / 1000.0
    return rows.group_by(pl.col("op_type").cast(pl.String).fill_null("?").alias("name")).agg(
        pl.len().cast(pl.Int64).alias("calls"), size=pl.col("bytes").sum().cast(pl.Float64), elapse=length, transit=length
    )


def _kind() -> pl.Expr:
    """Name of an operator without group, index and iteration: hcom_allReduce__271_0_1 is hcom_allReduce_."""
    return pl.col("name").cast(pl.String).str.replace(r"__[0-9_]+$", "_").alias("name")


def _length() -> pl.Expr:
    return pl.col("duration_ns").fill_null(pl.col("end_ns") - pl.col("start_ns"))


@dataclass(frozen=True)
class SlowWorker:
    """How far a worker is behind the fastest in computing, and where."""

    worker: str
    step_us: float
    behind_us: float
    cause: str | None  # None for the fastest
    operators: list[dict[str, object]]  # name, difference_us; the largest first


def slow_workers(workers: Mapping[str, Tables]) -> list[SlowWorker]:
    """Workers by how long they compute in a mean step: the one that computes longest holds the others up."""
    means = {worker: mean for worker, tables in workers.items() if (mean := mean_step(step_times(tables))) is not None}
    if not means:
        return []
    fastest = min(means, key=lambda worker: means[worker].computing + means[worker].overlapped)
    base = means[fastest]
    rows = []
    for worker, mean in means.items():
        compute = (mean.computing + mean.overlapped) - (base.computing + base.overlapped)
        exposed, free = mean.exposed - base.exposed, mean.free - base.free
        cause = CAUSES[0] if compute > max(exposed, free, 0) else CAUSES[1] if exposed > 0 else CAUSES[2]
        operators = slower_operators(workers[worker], workers[fastest]) if worker != fastest else []
        rows.append(SlowWorker(worker, mean.whole / 1000.0, compute / 1000.0, cause if compute > 0 else None, operators))
    return sorted(rows, key=lambda row: -row.behind_us)


def slower_operators(tables: Tables, fastest: Tables) -> list[dict[str, object]]:
    """Types of kernels that took longer than on the fastest worker: name, difference_us; the largest first."""
    sides = [
        one.kernels.filter(pl.col("kind") == "compute")
        .group_by(pl.coalesce("op_type", "name").cast(pl.String).alias("name"))
        .agg(us=(pl.col("end_ns") - pl.col("start_ns")).sum() / 1000.0)
        for one in (tables, fastest)
    ]
    joined = sides[0].join(sides[1], on="name", how="full", coalesce=True, suffix="_fastest").fill_null(0.0)
    ranked = joined.with_columns(difference_us=pl.col("us") - pl.col("us_fastest")).sort("difference_us", descending=True)
    return ranked.filter(pl.col("difference_us") > 0).head(MOST_OPERATORS).select("name", "difference_us").to_dicts()

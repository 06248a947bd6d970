# SPDX-License-Identifier: Apache-2.0
"""Where the time of one rank or of several goes: by operator, kernel, API call, module, step, mark or rank.

Times are in milliseconds, shares fractions of 1. Rows of several ranks that mean the same are added up; steps are not, because
the steps of all ranks run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from stepscope.analysis.flops import flops_by_operator, flops_by_step
from stepscope.analysis.marks import mark_summary
from stepscope.analysis.operators import operator_summary
from stepscope.analysis.statistics import api_statistic, kernel_summary
from stepscope.analysis.step_time import device_time, step_times
from stepscope.analysis.views import module_view
from stepscope.tables import Tables

# Words of the vendor's files, and those of all commands.
_WORDS = {
    "avg_ns": "mean_ns",
    "not_overlapped_ns": "exposed_ns",
    "not_overlapped_except_receive_ns": "exposed_except_receive_ns",
}


@dataclass(frozen=True)
class Grouping:
    """One way to group time.

    `key`: columns whose values name a row in every rank; none: the rows of each rank stay apart, with their rank.
    `order`: what the largest rows have most of. `shares`: columns with shares, each with the column it is a share of.
    `lesser`: what a narrow terminal leaves out, the least useful first.
    """

    rows: Callable[[Tables], pl.DataFrame]
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    shares: tuple[tuple[str, str], ...] = ()
    lesser: tuple[str, ...] = ()


def top(tables: Tables | Sequence[Tables], *, by: str, all_tasks: bool = False) -> pl.DataFrame:
    """Where the time goes, largest first; `all_tasks`: see `statistics.kernel_summary`."""
    ranks = [tables] if isinstance(tables, Tables) else list(tables)
    if by == "rank":
        return pl.concat([_rank(each) for each in ranks], how="diagonal_relaxed").sort("rank", maintain_order=True)
    grouping = TOP[by]
    frames = [_kernels(each, all_tasks=all_tasks) if by == "kernel" else grouping.rows(each) for each in ranks]
    if len(frames) == 1:
        return frames[0]
    if not grouping.key:
        return pl.concat([_with_rank(frame, each) for frame, each in zip(frames, ranks, strict=True)], how="diagonal_relaxed")
    return _added_up(frames, grouping)


def tasks_left_out(tables: Tables | Sequence[Tables]) -> int:
    """How many tasks of streams `top` by kernel leaves out: waits, notifications, parts of communication operators."""
    ranks = [tables] if isinstance(tables, Tables) else tables
    return sum(
        sign * int(kernel_summary(each, all_tasks=all_tasks)["calls"].sum())
        for each in ranks
        for sign, all_tasks in ((1, True), (-1, False))
    )


def _added_up(frames: Sequence[pl.DataFrame], grouping: Grouping) -> pl.DataFrame:
    text = pl.col(pl.Categorical(), pl.String).cast(pl.String)
    filled = [frame for frame in frames if frame.height] or [frames[0]]
    every = pl.concat([frame.with_columns(text) for frame in filled], how="diagonal_relaxed")
    shown = every.columns
    if "GFLOP/s" in shown:  # the rate of all ranks is all operations over all of their time
        every = every.with_columns(busy=pl.col("flops") / pl.col("GFLOP/s"))
    summed = every.group_by(grouping.key, maintain_order=True).agg(
        _total(name) for name in every.columns if name not in grouping.key
    )
    derived = {"mean_ms": pl.col("total_ms") / pl.col("calls")}
    derived |= {name: (pl.col(whole) / pl.col(whole).sum()).fill_nan(0.0) for name, whole in grouping.shares}
    derived["GFLOP/s"] = pl.col("flops") / pl.col("busy")
    order = [name for name in grouping.order if name in shown]
    descending = [name in order for name in (*order, *grouping.key)]
    return (
        summed.with_columns(**{name: value for name, value in derived.items() if name in shown})
        .sort(*order, *grouping.key, descending=descending, nulls_last=True)
        .select(shown)
    )


def _total(column: str) -> pl.Expr:
    value = pl.col(column)
    if column.startswith("min_"):
        return value.min()
    if column.startswith("max_"):
        return value.max()
    return pl.when(value.count() > 0).then(value.sum()).alias(column)


def _with_rank(frame: pl.DataFrame, tables: Tables) -> pl.DataFrame:
    return frame.select(pl.lit(_number(tables), pl.Int64).alias("rank"), pl.all())


def _number(tables: Tables) -> int | None:
    return tables.facts.rank if tables.facts.rank >= 0 else None


def _rank(tables: Tables) -> pl.DataFrame:
    """One row: the mean step of a rank on the host and on its devices; without steps the whole capture."""
    device, steps = device_time(tables), tables.steps
    host = ((steps["end_ns"] - steps["start_ns"]) / 1e6).mean()
    row: dict[str, object] = {"rank": _number(tables), "steps": steps.height, "host_ms": host}
    if device.rows:
        parts = {
            "computing": device.computing_ns,
            "exposed": device.exposed_ns,
            "overlapped": device.overlapped_ns,
            "free": device.free_ns,
        }
        row |= {f"{name}_ms": value / device.rows / 1e6 for name, value in parts.items()}
        row |= {f"{name}_share": device.share(parts[name]) for name in ("computing", "exposed", "free")}
    return pl.DataFrame([row], schema_overrides={"rank": pl.Int64, "host_ms": pl.Float64})


def _milliseconds(frame: pl.DataFrame) -> pl.DataFrame:
    times = [name for name in frame.columns if name.endswith("_ns")]
    named = {name: f"{_WORDS.get(name, name).removesuffix('_ns')}_ms" for name in times}
    return frame.with_columns(pl.col(times) / 1e6).rename(named)


def _operators(tables: Tables) -> pl.DataFrame:
    frame = _without_idle_device(_milliseconds(operator_summary(tables)), tables)
    if not tables.ops["flops"].count():
        return frame
    counted = flops_by_operator(tables).select("name", "flops", _giga())
    return frame.join(counted, on="name", how="left", maintain_order="left")


def _kernels(tables: Tables, *, all_tasks: bool = False) -> pl.DataFrame:
    return _milliseconds(kernel_summary(tables, all_tasks=all_tasks))


def _api_calls(tables: Tables) -> pl.DataFrame:
    frame = api_statistic(tables).rename({"count": "calls"}).drop("variance_us2")
    return _milliseconds(frame.sort("total_ns", pl.col("name").cast(pl.String), descending=[True, False]))


def _modules(tables: Tables) -> pl.DataFrame:
    frame = _milliseconds(module_view(tables)).drop("depth")
    return _without_idle_device(frame.sort("device_total_ms", "host_total_ms", descending=True, maintain_order=True), tables)


def _without_idle_device(frame: pl.DataFrame, tables: Tables) -> pl.DataFrame:
    """Device columns only where there is a device: a capture of the CPU alone would show zeros."""
    if tables.kernels.height or tables.collectives.height or tables.op_times.height:
        return frame
    return frame.select(name for name in frame.columns if not name.startswith("device_"))


def _steps(tables: Tables) -> pl.DataFrame:
    host = tables.steps.select("step", host_ns=pl.col("end_ns") - pl.col("start_ns"), inflated=pl.col("inflated"))
    if tables.step_phases.height:  # of a ring
        phases = tables.step_phases.select(
            "start_ns", "data_wait_ns", "other_loader_ns", "gc_ns", "checkpoint_ns", "limit_ns", "outlier"
        )
        keyed = host.with_columns(start_ns=tables.steps["start_ns"])
        host = keyed.join(phases, on="start_ns", how="left", maintain_order="left").drop("start_ns")
    device = step_times(tables).drop_nulls("step")
    if not host.height and device.height:  # the vendor's figures are all that is left
        return _milliseconds(device)
    joined = host if not device.height else host.join(device, on="step", how="left", maintain_order="left")
    if tables.ops["flops"].count():
        counted = flops_by_step(tables).select("step", "flops", _giga()).unique("step", keep="first", maintain_order=True)
        joined = joined.join(counted, on="step", how="left", maintain_order="left")
    return _milliseconds(joined)


def _giga() -> pl.Expr:
    return (pl.col("flops_per_s") / 1e9).alias("GFLOP/s")


def _marks(tables: Tables) -> pl.DataFrame:
    frame = mark_summary(tables)
    return _milliseconds(frame if frame["device_calls"].sum() else frame.drop("device_calls", "device_ns"))


TOP: dict[str, Grouping] = {
    "op": Grouping(
        _operators,
        key=("name",),
        order=("device_self_ms", "host_self_ms"),
        shares=(("host_share", "host_self_ms"), ("device_share", "device_self_ms")),
        lesser=("flops", "GFLOP/s", "host_share", "host_total_ms", "device_total_ms", "host_self_ms"),
    ),
    "kernel": Grouping(
        _kernels,
        key=("name", "kind", "core"),
        order=("total_ms",),
        shares=(("share", "total_ms"),),
        lesser=("core", "min_ms", "max_ms", "mean_ms", "kind"),
    ),
    "api": Grouping(
        _api_calls,
        key=("level", "name"),
        order=("total_ms",),
        lesser=("min_ms", "max_ms", "level", "mean_ms"),
    ),
    "module": Grouping(
        _modules,
        key=("path",),
        order=("device_total_ms", "host_total_ms"),
        lesser=("operators", "host_self_ms", "device_self_ms", "device_backward_ms", "calls"),
    ),
    "step": Grouping(
        _steps,
        lesser=(
            "flops", "GFLOP/s", "bubble_ms", "preparing_ms", "exposed_except_receive_ms", "stage_ms", "overlapped_ms",
            "inflated", "communication_ms", "device", "limit_ms", "other_loader_ms",
        ),
    ),
    "mark": Grouping(
        _marks,
        key=("domain", "mark"),
        order=("total_ms",),
        lesser=("min_ms", "max_ms", "device_calls", "mean_ms", "domain", "device_ms"),
    ),
}  # fmt: skip
RANK_LESSER = ("overlapped_ms", "computing_share", "free_share", "exposed_share")

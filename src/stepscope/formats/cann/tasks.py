# SPDX-License-Identifier: Apache-2.0
"""What ran on the devices, joined with what the host queued: tables `kernels` and `kernel_metrics` (docs/formats/cann.md 7.2)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.formats.cann.device.side import DeviceSide
from stepscope.formats.cann.host.side import HostSide
from stepscope.tables import ALL_TABLES, TEXT, issues, lost
from stepscope.tables.npu_kinds import task_kind

KEY = ["stream", "task_id", "batch_id", "context_id"]

# Cores of kernels that carry out or schedule communication; of those only the ones on vector cores are operators.
_COMMUNICATION = ("COMMUNICATION", "HCCL_AI_CPU")
_AIV_KERNEL = "AivKernel"
_FROM_HOST = (
    "host_type", "kernel_name", "model_id", "connection_id", "description", "bytes", "copy_direction", "grid", "block",
    "block_num", "mix_block_num",
)  # fmt: skip
_BLOCKS = ("block_num", "mix_block_num")
_OWN_BLOCKS = ("own_block_num", "own_mix_block_num")  # of tasks whose size the device chose
_FROM_DESCRIPTION = (
    "op_name", "op_type", "core", "op_state", "hf32", "input_shapes", "input_dtypes",
    "input_formats", "output_shapes", "output_dtypes", "output_formats", "attrs",
)  # fmt: skip
_STATES = ("scheduled_type", "waiting_ns", "running_ns", "pending_ns")
_NO_ROWS = pl.DataFrame(
    schema={
        **dict.fromkeys((*KEY, "start_ns", "end_ns"), pl.Int64()),
        "duration_ns": pl.Float64(),
        "device_type": TEXT,
        "pmu": pl.Int64(),
        **dict.fromkeys(_OWN_BLOCKS, pl.Int64()),
        "device": pl.Int32(),
        "host": pl.Int64(),
    }
)


@dataclass(frozen=True)
class JoinedTasks:
    """Device tasks of all devices, by device and start: one row of `rows` is one row of table `kernels`.

    rows: device, KEY, start_ns, end_ns, duration_ns, device_type, pmu (row of the device's counters) and host (row of
    `HostSide.tasks`).
    """

    rows: pl.DataFrame
    quality: tuple[pl.DataFrame, ...]


def join(host: HostSide, devices: Sequence[DeviceSide]) -> JoinedTasks:
    """For each device task the host task of the same key."""
    frames, quality = [], []
    queued = host.tasks.select("device", *KEY, "stamp_ns", pl.int_range(pl.len(), dtype=pl.Int64).alias("host"))
    # Of several rows about one task the one that makes it an operator counts.
    queued = (
        queued[host.tasks["description"].is_null().arg_sort()] if queued.select("device", *KEY).is_duplicated().any() else queued
    )
    for side in devices:
        found = _match(queued.filter(pl.col("device") == side.device), side.tasks.select(KEY), in_order=side.in_order)
        states = [name for name in _STATES if name in side.tasks.columns]
        rows = _with_own_blocks(side).select(*KEY, "start_ns", "end_ns", "duration_ns", "device_type", "pmu", *_OWN_BLOCKS, *states)
        frames.append(rows.with_columns(pl.lit(side.device, pl.Int32).alias("device"), found.rows.alias("host")))
        place = f"device_{side.device}"
        quality += [
            lost(issues.OPERATOR_UNKNOWN, place, found.ambiguous, "several host tasks for several device tasks"),
            lost(issues.OPERATOR_UNKNOWN, place, found.unknown, "no host task"),
        ]
    rows = pl.concat([_NO_ROWS, *frames], how="diagonal").sort("device", "start_ns", maintain_order=True)
    return JoinedTasks(rows, tuple(row for row in quality if row.height))


@dataclass(frozen=True)
class _Match:
    rows: pl.Series  # of the host task, for each device task
    ambiguous: int
    unknown: int


def _with_own_blocks(side: DeviceSide) -> pl.DataFrame:
    """Tasks with the sizes that the device chose for them."""
    sizes = side.track.blocks.rename(dict(zip(_BLOCKS, _OWN_BLOCKS, strict=True)))
    if not sizes.height:
        return side.tasks.with_columns(pl.lit(None, pl.Int64).alias(name) for name in _OWN_BLOCKS)
    key = [name for name in ("stream", "task_id", "batch_id") if sizes[name].null_count() == 0]
    return side.tasks.join(sizes.select(*key, *_OWN_BLOCKS), on=key, how="left", maintain_order="left")


def _match(queued: pl.DataFrame, device_tasks: pl.DataFrame, *, in_order: bool) -> _Match:
    """A host task may run several times (graphs); where several host tasks have one key, only a single run is assigned.

    `in_order`: the rounds of task numbers are not told apart, so the n-th run of a number belongs to the n-th host task of it.
    """
    counted = queued.group_by(KEY).agg(pl.col("host").first(), pl.col("stamp_ns").n_unique().alias("queued"))
    found = device_tasks.join(counted, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    rows, ambiguous = found["host"], 0
    if in_order and counted["queued"].max() not in (None, 1):
        one_of = queued.unique([*KEY, "stamp_ns"], keep="first", maintain_order=True)
        turn = (pl.col("stamp_ns").rank("ordinal").over(KEY) - 1).cast(pl.Int64).alias("turn")
        taken = device_tasks.with_columns(turn=pl.int_range(pl.len(), dtype=pl.Int64).over(KEY)).join(
            one_of.select(*KEY, "host", turn), on=[*KEY, "turn"], how="left", nulls_equal=True, maintain_order="left"
        )["host"]
        rows = rows.zip_with((found["queued"] == 1).fill_null(True), taken)
    elif counted["queued"].max() not in (None, 1):
        runs = found.select(pl.len().over(KEY)).to_series()
        strange = ((found["queued"] > 1) & (runs > 1)).fill_null(False)
        ambiguous = int(strange.sum())
        rows = rows.set(strange, None)
    return _Match(rows, ambiguous, rows.null_count() - ambiguous)


def kernels(joined: JoinedTasks, host: HostSide, pid: int | None, *, one_core: Collection[int] = ()) -> pl.DataFrame:
    """Table `kernels`; row by row the tasks of `joined`.

    Args:
        joined: the tasks of all devices.
        host: what queued them.
        pid: the process.
        one_core: devices with one kind of core whose timeline shows it.
    """
    queued = gather_rows(host.tasks.select(_FROM_HOST), joined.rows["host"])
    described = gather_rows(host.descriptions.select(*_FROM_DESCRIPTION, *_BLOCKS), queued["description"])
    own = [joined.rows[name].set(queued["description"].is_null(), None) for name in _OWN_BLOCKS]
    blocks = [
        pl.select(pl.coalesce(size, queued[name], described[name])).to_series().alias(name)
        for name, size in zip(_BLOCKS, own, strict=True)
    ]
    rows = joined.rows.hstack(queued.drop(_BLOCKS)).hstack(described.drop(_BLOCKS)).hstack(blocks)
    # The device knows better what a task graph ran, and what the host did not describe.
    by_device = pl.col("host_type").is_null() | (pl.col("host_type") == "FFTS_PLUS")
    task_type = pl.when(by_device).then("device_type").otherwise("host_type")
    # With one kind of core "vector" is a wish of the host, kept as the core; the task ran on what the device says.
    wished = pl.col("device").is_in(list(one_core)) & (pl.col("core") == "AI_VECTOR_CORE").fill_null(False)
    frame = rows.with_columns(
        pl.coalesce("op_name", task_type).alias("name"),
        pl.coalesce(pl.when(wished).then("device_type"), "core", task_type).alias("task_type"),
        pl.coalesce("host_type", "device_type").alias("host_task_type"),
        pl.lit(pid, pl.Int64).alias("pid"),
        _kind(rows),
        _extra(rows),
    )
    return ALL_TABLES["kernels"].conform(frame)


def kernel_metrics(joined: JoinedTasks, kernels: pl.DataFrame, devices: Sequence[DeviceSide]) -> pl.DataFrame:
    """Table `kernel_metrics`: the counters of operators."""
    frames = []
    # The vendor's shares are of the span in whole nanoseconds, not of the duration.
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64).alias("duration_ns")
    numbered = kernels.select("device", "block_num", "mix_block_num", length, pl.int_range(pl.len()).alias("kernel"))
    counted = numbered.hstack([joined.rows["pmu"]]).filter(pl.col("pmu").is_not_null() & (kernels["kind"] == "compute"))
    for side in devices:
        rows = counted.filter(pl.col("device") == side.device)
        if rows.height:
            values = side.metrics(rows.select("pmu", "block_num", "mix_block_num", "duration_ns"))
            frames.append(values.with_columns(rows["kernel"].cast(pl.Int64)))
    return (
        ALL_TABLES["kernel_metrics"].conform(pl.concat(frames, how="diagonal")) if frames else ALL_TABLES["kernel_metrics"].empty()
    )


def task_states(joined: JoinedTasks) -> pl.DataFrame:
    """Table `task_states`; empty where no scheduler reports states."""
    table = ALL_TABLES["task_states"]
    if "waiting_ns" not in joined.rows.columns:
        return table.empty()
    return table.conform(joined.rows.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("kernel"), *_STATES))


def task_parts(kernels: pl.DataFrame, devices: Sequence[DeviceSide]) -> pl.DataFrame:
    """Table `task_parts`: each part with the run that it began in."""
    table, key = ALL_TABLES["task_parts"], ["device", "stream", "task_id"]
    frames = [side.parts.with_columns(pl.lit(side.device, pl.Int32).alias("device")) for side in devices if side.parts.height]
    if not frames:
        return table.empty()
    whole = pl.col("context_id").is_null()
    runs = kernels.with_columns(kernel=pl.int_range(pl.len(), dtype=pl.Int64)).filter(whole)
    runs = runs.select(*key, "kernel", begin_ns="start_ns", stop_ns="end_ns").sort("begin_ns")
    rows = pl.concat(frames).sort("start_ns", maintain_order=True)
    found = rows.join_asof(runs, left_on="start_ns", right_on="begin_ns", by=key, strategy="backward", check_sortedness=False)
    inside = pl.when(pl.col("start_ns") <= pl.col("stop_ns")).then("kernel").alias("kernel")
    return table.sort(table.conform(found.with_columns(inside)))


def gather_rows(frame: pl.DataFrame, rows: pl.Series) -> pl.DataFrame:
    """The rows of these numbers; nulls where there is no number."""
    return frame.select(pl.all().gather(rows)) if frame.height else frame.clear(len(rows))


def _kind(rows: pl.DataFrame) -> pl.Series:
    """compute for operators, by the type of the task for all others."""
    types = rows.select(pl.coalesce("host_type", "device_type").alias("type"))["type"]
    words = types.unique().to_frame().with_columns(task_kind(pl.col("type").cast(pl.String)).alias("kind"))
    core, name = pl.col("core").cast(pl.String), pl.col("op_name").cast(pl.String)
    communicates = core.is_in(_COMMUNICATION) & ~name.str.ends_with(_AIV_KERNEL)
    kinds = types.to_frame().join(words, on="type", how="left", nulls_equal=True, maintain_order="left")["kind"]
    operator = pl.when(communicates.fill_null(False)).then(pl.lit("communication")).otherwise(pl.lit("compute"))
    return rows.select(
        pl.when(pl.col("op_name").is_not_null()).then(operator).otherwise(kinds).cast(TEXT).alias("kind")
    ).to_series()


def _extra(rows: pl.DataFrame) -> pl.Series:
    """Whether a task is not the one that stands for its launch: the operator's kernel does, else the first task."""
    launch = rows["connection_id"].fill_null(-1).to_numpy()
    operator = rows["op_name"].is_not_null().to_numpy()
    order = np.lexsort((np.arange(len(launch)), ~operator, launch))
    first = np.ones(len(launch), bool)
    first[order[1:]] = launch[order[1:]] != launch[order[:-1]]
    return pl.Series("extra", ~first & (launch >= 0))

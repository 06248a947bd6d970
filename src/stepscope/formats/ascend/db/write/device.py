# SPDX-License-Identifier: Apache-2.0
"""Device tables of the profiler database: rows from tables (docs/formats/outputs.md 12.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from stepscope.formats import NONE32
from stepscope.formats.ascend.db.columns import COMPUTE_SHAPES, COMPUTE_TEXTS, SPAN, TASK, TRANSFER, written
from stepscope.formats.ascend.db.schema import ENUMS, NO_CONNECTION, NO_NOTIFY, OLD_ENUMS
from stepscope.formats.ascend.db.string_ids import StringIds
from stepscope.formats.ascend.db.write.numbers import after
from stepscope.tables import Tables

_NO_TYPE, _INVALID_TYPE = 65534, 65535
# docs/formats/enums.md 2: what the host queues for a core, where the source tells only the core.
_HOST_TYPES = {
    "AI_CORE": "KERNEL_AICORE",
    "AI_CPU": "KERNEL_AICPU",
    "AI_VECTOR_CORE": "KERNEL_AIVEC",
    "MIX_AIC": "KERNEL_MIX_AIC",
    "MIX_AIV": "KERNEL_MIX_AIV",
}
_HOLDER = "FFTS_PLUS"  # only the device knows what it holds
_MARK_TASK = "PROFILER_TRACE_EX"
# Derived from other counters of the row; the database holds what was measured (docs/formats/enums.md 5).
_DERIVED_METRICS = ("cube_utilization",)


def device_rows(tables: Tables, strings: StringIds) -> dict[str, pl.DataFrame]:
    """All tables that hang on TASK; tasks are numbered once, for all of them."""
    kernels = _numbered(tables["kernels"])
    transfers = _located(tables["transfers"], kernels)
    return {
        "TASK": _tasks(tables, kernels, transfers, strings),
        "COMPUTE_TASK_INFO": _compute(kernels.filter(pl.col("kind") == "compute"), strings),
        "COMMUNICATION_SCHEDULE_TASK_INFO": _schedules(kernels, transfers, strings),
        "MEMCPY_INFO": _copies(kernels),
        "COMMUNICATION_OP": _operators(tables["collectives"], strings),
        "COMMUNICATION_TASK_INFO": _links(transfers, tables["collectives"], strings),
    }


def _numbered(kernels: pl.DataFrame) -> pl.DataFrame:
    """Kernels with a unique global_task_id: the source's own where those are unique, else by start."""
    given = kernels["global_task_id"]
    if kernels.height and not given.null_count() and given.n_unique() == len(given):
        return kernels
    return kernels.sort("start_ns", maintain_order=True).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("global_task_id")
    )


def _located(transfers: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Transfers with the number of their task; those without a task get numbers above all others."""
    if not transfers.height:
        return transfers.with_columns(pl.lit(False).alias("is_task"))
    place = ["device", "stream", "task_id", "context_id", "start_ns"]
    same = kernels.select(*place, pl.col("global_task_id").alias("found")).unique(place, keep="first")
    numbers = kernels.select(pl.col("global_task_id").alias("given"), pl.lit(True).alias("is_given"))
    frame = (
        transfers.join(same, on=place, how="left", maintain_order="left", nulls_equal=True)
        .join(numbers, left_on="global_task_id", right_on="given", how="left", maintain_order="left")
        .with_columns(pl.coalesce("found", pl.when(pl.col("is_given")).then("global_task_id")).alias("found"))
    )
    fresh = pl.int_range(pl.len(), dtype=pl.Int64) + after(kernels["global_task_id"])
    return frame.with_columns(
        pl.col("found").is_not_null().alias("is_task"), pl.coalesce("found", fresh).alias("global_task_id")
    ).drop("found", "is_given")


def _tasks(tables: Tables, kernels: pl.DataFrame, transfers: pl.DataFrame, strings: StringIds) -> pl.DataFrame:
    queued = kernels["core"].cast(pl.String).replace_strict(_HOST_TYPES, default=None, return_dtype=pl.String)
    shown = kernels.select(
        *_place(),
        pl.col("connection_id"),
        pl.col("global_task_id"),
        pl.col("pid"),
        # A task that is not an operator is named by its kind.
        pl.coalesce(
            pl.when(pl.col("host_task_type") != _HOLDER).then("host_task_type"),
            pl.when(pl.col("host_task_type") == _HOLDER).then("task_type"),
            "host_task_type",
            queued.cast(kernels["name"].dtype),
            pl.when(pl.col("kind") != "compute").then("name"),
            "task_type",
            "name",
        ).alias("type"),
        "context_id",
        "stream",
        "task_id",
        "model_id",
    )
    alone = transfers.filter(~pl.col("is_task"))
    launches = tables["collectives"].select("connection_id")[alone["collective"].fill_null(0)] if alone.height else alone.clear()
    parts = [shown]
    if alone.height:
        connection = pl.when(alone["collective"].is_not_null()).then(launches["connection_id"])
        parts.append(
            alone.select(
                *_place(), connection.alias("connection_id"), "global_task_id", pl.col("task_type").alias("type"), "context_id",
                "stream", "task_id", "model_id",
            )
        )  # fmt: skip
    marks = _mark_tasks(tables, kernels)
    if marks.height:
        first = max(after(part["global_task_id"]) for part in parts)
        parts.append(marks.with_columns((pl.int_range(pl.len(), dtype=pl.Int64) + first).alias("global_task_id")))
    rows = pl.concat(parts, how="diagonal").sort("startNs", maintain_order=True)
    known = rows.with_columns(pl.col("connection_id").fill_null(NO_CONNECTION), pl.col("context_id", "model_id").fill_null(NONE32))
    return known.select(
        "startNs", "endNs", "deviceId", *written(TASK), strings.of(rows["type"], 0, missing="N/A").alias("taskType")
    )


def _mark_tasks(tables: Tables, kernels: pl.DataFrame) -> pl.DataFrame:
    """Device parts of marks that are not tasks of their own yet."""
    marks = tables["marks"].filter(pl.col("device_start_ns").is_not_null() & pl.col("connection_id").is_not_null())
    marks = marks.join(kernels.select("connection_id"), on="connection_id", how="anti")
    return marks.select(
        pl.col("device_start_ns").alias("startNs"),
        pl.col("device_end_ns").alias("endNs"),
        pl.col("device").cast(pl.Int64).alias("deviceId"),
        "connection_id",
        "pid",
        pl.lit(_MARK_TASK).cast(marks["message"].dtype).alias("type"),
        "stream",
    )


def _place() -> list[pl.Expr]:
    return [*written(SPAN), pl.col("device").cast(pl.Int64).alias("deviceId")]


def _quoted(text: pl.Expr) -> pl.Expr:
    # The profiler keeps the quotes of its csv cells around shapes.
    return '"' + text + '"'


def _compute(kernels: pl.DataFrame, strings: StringIds) -> pl.DataFrame:
    return kernels.select(
        strings.of(kernels["name"], 0, missing="N/A").alias("name"),
        pl.col("global_task_id").alias("globalTaskId"),
        pl.col("block_num").alias("blockNum"),
        pl.col("mix_block_num").alias("mixBlockNum"),
        *(strings.of(kernels[column], 0, missing="N/A").alias(name) for name, column in COMPUTE_TEXTS.items()),
        *(strings.of(kernels[column], 0, missing="N/A", change=_quoted).alias(name) for name, column in COMPUTE_SHAPES.items()),
    )


def _schedules(kernels: pl.DataFrame, transfers: pl.DataFrame, strings: StringIds) -> pl.DataFrame:
    """Tasks that schedule communication without moving data themselves."""
    rows = kernels.filter((pl.col("kind") == "communication") & pl.col("op_type").is_not_null())
    rows = rows.join(transfers.select("global_task_id"), on="global_task_id", how="anti")
    return rows.select(
        strings.of(rows["name"], 0, missing="N/A").alias("name"),
        pl.col("global_task_id").alias("globalTaskId"),
        strings.of(rows["core"], 0, missing="N/A").alias("taskType"),
        strings.of(rows["op_type"], 0, missing="N/A").alias("opType"),
    )


def _copies(kernels: pl.DataFrame) -> pl.DataFrame:
    rows = kernels.filter(pl.col("copy_direction").is_not_null() | (pl.col("bytes").is_not_null() & (pl.col("kind") == "memcpy")))
    return rows.select(
        pl.col("global_task_id").alias("globalTaskId"),
        pl.col("bytes").alias("size"),
        _number(rows["copy_direction"], ENUMS["ENUM_MEMCPY_OPERATION"], 65535).alias("memcpyOperation"),
    )


def _operators(collectives: pl.DataFrame, strings: StringIds) -> pl.DataFrame:
    group = collectives.select(pl.coalesce("group_name", "group").alias("group"))["group"]
    return collectives.select(
        strings.of(collectives["name"], 0, missing="N/A").alias("opName"),
        *_place(),
        pl.col("connection_id").fill_null(NO_CONNECTION).alias("connectionId"),
        strings.of(group, 0, missing="N/A").alias("groupName"),
        _operator_numbers(collectives).alias("opId"),
        pl.col("relay").fill_null(False).cast(pl.Int64),
        pl.col("retry").fill_null(False).cast(pl.Int64),
        _number(collectives["data_type"], ENUMS["ENUM_HCCL_DATA_TYPE"], _NO_TYPE).alias("dataType"),
        strings.of(collectives["alg_type"], 0, missing="N/A").alias("algType"),
        "count",
        strings.of(collectives["op_type"], 0, missing="N/A").alias("opType"),
        pl.col("rank_size").alias("rankSize"),
    )


def _operator_numbers(collectives: pl.DataFrame) -> pl.Series:
    given = collectives["comm_op_id"]
    if collectives.height and not given.null_count() and given.n_unique() == len(given):
        return given
    return pl.int_range(collectives.height, dtype=pl.Int64, eager=True)


def _links(transfers: pl.DataFrame, collectives: pl.DataFrame, strings: StringIds) -> pl.DataFrame:
    if not transfers.height:
        return pl.DataFrame()
    owner = transfers["collective"]
    described = collectives.select(
        strings.of(collectives["name"], 0, missing="N/A").alias("name"),
        strings.of(collectives.select(pl.coalesce("group_name", "group").alias("group"))["group"], 0, missing="N/A").alias(
            "groupName"
        ),
        _operator_numbers(collectives).alias("opId"),
    )
    nowhere = strings.id("N/A", 0)
    rdma_types = {**OLD_ENUMS["ENUM_HCCL_RDMA_TYPE"], **ENUMS["ENUM_HCCL_RDMA_TYPE"]}
    # A task that is known not to be RDMA, and one of which nothing is known.
    no_rdma = pl.when(pl.col("transport").is_not_null()).then(_INVALID_TYPE).otherwise(_NO_TYPE)
    known = transfers.with_columns(
        strings.of(transfers["task_type"], 0, missing="N/A").alias("task_type"),
        pl.col("plane", "src_rank", "dst_rank").fill_null(NONE32),
        pl.coalesce(_number(transfers["rdma_type"], rdma_types), no_rdma).alias("rdma_type"),
        _number(transfers["transport"], ENUMS["ENUM_HCCL_TRANSPORT_TYPE"], _NO_TYPE).alias("transport"),
        pl.col("bytes").fill_null(-1),
        _number(transfers["data_type"], ENUMS["ENUM_HCCL_DATA_TYPE"], _NO_TYPE).alias("data_type"),
        _number(transfers["link"], ENUMS["ENUM_HCCL_LINK_TYPE"], _NO_TYPE).alias("link"),
    )
    return known.select(
        described["name"].gather(owner).fill_null(nowhere),
        *written(TRANSFER),
        described["groupName"].gather(owner).fill_null(nowhere),
        pl.col("notify_id").cast(pl.String).cast(pl.Int64, strict=False).fill_null(NO_NOTIFY).alias("notifyId"),
        described["opId"].gather(owner),
        pl.col("is_master").cast(pl.Int64).alias("isMaster"),
        (pl.col("bandwidth") * 1e9).alias("bandwidth"),
    )


def _number(column: pl.Series, names: Mapping[int, str], missing: int | None = None) -> pl.Series:
    numbers = {name: number for number, name in names.items()}
    found: pl.Series = column.cast(pl.String).replace_strict(numbers, default=missing, return_dtype=pl.Int64)
    return found if missing is None else found.fill_null(missing)


def metric_rows(tables: Tables, strings: StringIds) -> pl.DataFrame:
    """TASK_PMU_INFO: one row per task and counter, counter by counter."""
    wide = tables["kernel_metrics"].drop(_DERIVED_METRICS, strict=False)
    names = [name for name in wide.columns if name != "kernel"]
    if not wide.height or not names:
        return pl.DataFrame()
    # Where `_numbered` keeps the row order only by start, the row of a kernel is found through its number.
    kernels = tables["kernels"].with_row_index("kernel").cast({"kernel": pl.Int64})
    numbers = _numbered(kernels).sort("kernel")["global_task_id"]
    task = numbers.gather(wide["kernel"]).shrink_dtype().alias("globalTaskId")  # there are millions of rows
    return pl.concat(
        wide.lazy()
        .select(task, pl.lit(strings.id(name, 0), pl.Int32).alias("name"), pl.col(name).alias("value"))
        .drop_nulls("value")
        for name in names
    ).collect(engine="in-memory")


def overlap_rows(spans: pl.DataFrame, layers: Sequence[str]) -> pl.DataFrame:
    """OVERLAP_ANALYSIS from spans by device and start; the number of a layer is its place in `layers`."""
    numbers = {name: number for number, name in enumerate(layers)}
    return spans.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        *_place(),
        pl.col("layer").replace_strict(numbers, return_dtype=pl.Int64).alias("type"),
    )

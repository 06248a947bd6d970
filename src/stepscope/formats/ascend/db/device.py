# SPDX-License-Identifier: Apache-2.0
"""Device side of a database: tasks, their counters, communication operators and their transfers (docs/formats/outputs.md 12.2)."""

from __future__ import annotations

import polars as pl

from stepscope.formats import NONE32
from stepscope.formats.ascend.db.columns import COMPUTE_SHAPES, COMPUTE_TEXTS, SPAN, TASK, TRANSFER, read
from stepscope.formats.ascend.db.database import Database
from stepscope.formats.ascend.db.schema import ENUMS, NO_CONNECTION, NO_NOTIFY, NO_NOTIFY_OLD, NOTHING, OLD_ENUMS
from stepscope.formats.sqlite.texts import enumerated, per_text
from stepscope.tables import ALL_TABLES, TEXT, issues
from stepscope.tables.npu_kinds import task_kind

_SPAN = tuple(SPAN)
# What a transfer has from its task.
_WHERE = {name: TASK[name] for name in ("streamId", "taskId", "contextId", "modelId")}
# docs/formats/enums.md 2: the core that runs a task of this host type.
_CORES = {
    "KERNEL_AICORE": "AI_CORE",
    "KERNEL_AICPU": "AI_CPU",
    "KERNEL_AIVEC": "AI_VECTOR_CORE",
    "SIMT": "AI_VECTOR_CORE",
    "KERNEL_MIX_AIC": "MIX_AIC",
    "KERNEL_MIX_AIV": "MIX_AIV",
}
# docs/formats/enums.md 2: types of tasks inside a graph of tasks (FFTS+).
_GRAPH_TASKS = {
    name: name for name in ("AI_CORE", "AI_CPU", "MIX_AIC", "MIX_AIV", "SDMA", "DSA", "Write Value", "Notify Wait", "Notify Record")
}


def read_tasks(db: Database) -> pl.DataFrame:
    """TASK as it stands, sentinels as null, in the order of table `kernels`."""
    rows = db.frame("TASK", required=_SPAN)
    none = pl.col("contextId", "modelId")
    return rows.with_columns(pl.when(none != NONE32).then(none), _connection()).sort("deviceId", "startNs", maintain_order=True)


def read_kernels(db: Database, tasks: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """One kernel per task; the row of a task is the row of its kernel."""
    frame = tasks
    for info in (_compute_info(db), _copies(db), _communication_parts(db)):
        frame = frame.join(info, on="globalTaskId", how="left", maintain_order="left")
    host_type = frame["taskType"]
    words = per_text(host_type, task_kind)
    kind = (
        pl.when(pl.col("is_compute")).then(pl.lit("compute"))
        .when(pl.col("is_communication")).then(pl.lit("communication"))
        .otherwise(words.cast(pl.String))
    )  # fmt: skip
    # The timeline shows what the device ran; only tasks inside a graph of tasks carry that as their type.
    shown = per_text(host_type, lambda text: text.replace_strict({**_CORES, **_GRAPH_TASKS}, default=None))
    frame = frame.with_columns(
        *read(SPAN),
        (pl.col("endNs") - pl.col("startNs")).cast(pl.Float64).alias("duration_ns"),
        kind.cast(TEXT).alias("kind"),
        pl.coalesce("op_name", "schedule_name", "taskType").alias("name"),
        pl.coalesce("core", "schedule_core").alias("core"),
        pl.coalesce("op_type", "schedule_type").alias("op_type"),
        pl.coalesce("core", shown.alias("shown")).alias("task_type"),
        _further(frame, collectives).alias("extra"),
    )
    return ALL_TABLES["kernels"].conform(frame.rename({"deviceId": "device", "taskType": "host_task_type", **TASK}))


def _compute_info(db: Database) -> pl.DataFrame:
    rows = db.frame("COMPUTE_TASK_INFO", required=("globalTaskId",), raw=("blockDim",))
    if "blockNum" in db.columns.get("COMPUTE_TASK_INFO", ()):
        blocks, threads = pl.col("blockNum"), db.text(rows["blockDim"])
    else:
        # docs/formats/outputs.md 16: before `blockNum` existed its value stood in `blockDim`, which now means threads of a block.
        blocks, threads = pl.col("blockDim"), db.text(rows["blockNum"])
    return _once(
        rows.select(
            "globalTaskId",
            pl.lit(True).alias("is_compute"),
            pl.col("name").alias("op_name"),
            blocks.alias("block_num"),
            pl.coalesce("mixBlockNum", "mixBlockDim").alias("mix_block_num"),
            *read({name: column for name, column in COMPUTE_TEXTS.items() if name != "blockDim"}),
            *(per_text(rows[name], _unquoted).alias(column) for name, column in COMPUTE_SHAPES.items()),
            threads.alias("block"),
        )
    )


def _unquoted(text: pl.Expr) -> pl.Expr:
    return text.str.strip_chars('"')


def _copies(db: Database) -> pl.DataFrame:
    rows = db.frame("MEMCPY_INFO", required=("globalTaskId",))
    directions = db.enum("ENUM_MEMCPY_OPERATION", ENUMS["ENUM_MEMCPY_OPERATION"])
    return rows.select(
        "globalTaskId", pl.col("size").alias("bytes"), enumerated(rows["memcpyOperation"], directions).alias("copy_direction")
    ).unique("globalTaskId", keep="first", maintain_order=True)


def _communication_parts(db: Database) -> pl.DataFrame:
    """Tasks that carry out or schedule a communication operator."""
    links = db.frame("COMMUNICATION_TASK_INFO", required=("globalTaskId",)).select("globalTaskId")
    scheduling = db.frame("COMMUNICATION_SCHEDULE_TASK_INFO", required=("globalTaskId",)).select(
        "globalTaskId",
        pl.col("name").alias("schedule_name"),
        pl.col("opType").alias("schedule_type"),
        pl.col("taskType").alias("schedule_core"),
    )
    return (
        pl.concat([scheduling, links], how="diagonal")
        .unique("globalTaskId", keep="first", maintain_order=True)
        .with_columns(pl.lit(True).alias("is_communication"))
    )


def _further(tasks: pl.DataFrame, collectives: pl.DataFrame) -> pl.Series:
    """Whether a task is not the one that stands for its launch: the operator's kernel does, else the first task.

    Of a communication operator no task does; the operator stands for itself (docs/formats/outputs.md 2.4).
    """
    connection = pl.col("connectionId")
    shared = tasks.select(
        connection,
        pl.int_range(pl.len()).alias("row"),
        pl.col("is_compute").fill_null(False),
        connection.is_in(collectives["connection_id"].implode()).alias("of_collective"),
    ).filter(connection.is_duplicated() | pl.col("of_collective"), connection.is_not_null())
    standing = (
        shared.filter(~pl.col("of_collective"))
        .sort("is_compute", "row", descending=[True, False])
        .unique("connectionId", keep="first", maintain_order=True)
    )
    further = shared.join(standing, on="row", how="anti")["row"]
    return pl.repeat(False, tasks.height, eager=True).scatter(further, True)


def read_metrics(db: Database, kernels: pl.DataFrame) -> pl.DataFrame:
    """TASK_PMU_INFO with one column per metric; times are ns there already (docs/formats/outputs.md 13)."""
    rows = db.frame("TASK_PMU_INFO", required=("globalTaskId", "name", "value"))
    table = ALL_TABLES["kernel_metrics"]
    if not rows.height:
        return table.empty()
    number = kernels.select(pl.col("global_task_id").alias("globalTaskId"), pl.int_range(pl.len()).alias("kernel"))
    known = rows.join(number.drop_nulls(), on="globalTaskId", how="inner", maintain_order="left")
    db.lost(issues.UNMATCHED_COUNTERS, rows.height - known.height, "TASK_PMU_INFO")
    names = known["name"].unique(maintain_order=True).cast(pl.String)
    wide = known.with_columns(pl.col("name").cast(pl.String)).pivot(
        on="name", on_columns=names, index="kernel", values="value", aggregate_function="first"
    )
    return table.conform(wide)


def read_collectives(db: Database, tasks: pl.DataFrame) -> pl.DataFrame:
    rows = db.frame("COMMUNICATION_OP", required=_SPAN).with_columns(_connection())
    types = db.enum("ENUM_HCCL_DATA_TYPE", ENUMS["ENUM_HCCL_DATA_TYPE"])
    # docs/formats/outputs.md 12.3: the databases of the profiler hold the group's full text, the vendor's analysis its hash.
    is_hash = per_text(rows["groupName"], lambda text: text.str.contains(r"^\d+$"), pl.Boolean()).fill_null(False)
    frame = rows.join(_devices(tasks, rows), on="connectionId", how="left", maintain_order="left").select(
        pl.coalesce("deviceId", "device").alias("device"),
        *read(SPAN),
        (pl.col("endNs") - pl.col("startNs")).cast(pl.Float64).alias("duration_ns"),
        pl.col("opName").alias("name"),
        pl.col("opType").alias("op_type"),
        pl.when(is_hash).then("groupName").alias("group"),
        pl.when(~is_hash).then("groupName").alias("group_name"),
        pl.col("opId").alias("comm_op_id"),
        enumerated(rows["dataType"], types, ("N/A",)).alias("data_type"),
        pl.col("algType").alias("alg_type"),
        "count",
        pl.when(pl.col("rankSize") != NONE32).then("rankSize").alias("rank_size"),
        pl.col("relay").cast(pl.Boolean),
        pl.col("retry").cast(pl.Boolean),
        pl.col("connectionId").alias("connection_id"),
    )
    devices = tasks["deviceId"].drop_nulls().unique()
    if len(devices) == 1:
        frame = frame.with_columns(pl.col("device").fill_null(devices[0]))
    db.lost(issues.UNMATCHED_COMMUNICATION, frame["device"].null_count(), "COMMUNICATION_OP")
    return ALL_TABLES["collectives"].conform(frame)


def _once(rows: pl.DataFrame) -> pl.DataFrame:
    """The first row of each task number."""
    numbers = rows["globalTaskId"].to_numpy()
    if (numbers[1:] > numbers[:-1]).all():
        return rows  # the usual case, and far cheaper to see than to make
    return rows.unique("globalTaskId", keep="first", maintain_order=True)


def _devices(tasks: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """Device of each connection id whose tasks all ran on one device."""
    return (
        tasks.join(operators.select("connectionId"), on="connectionId", how="semi")
        .select("connectionId", pl.col("deviceId").alias("device"))
        .drop_nulls()
        .unique()
        .filter(~pl.col("connectionId").is_duplicated())
    )


def read_transfers(db: Database, tasks: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    rows = db.frame("COMMUNICATION_TASK_INFO", required=("globalTaskId",))
    rows = rows.with_columns(
        enumerated(
            rows["rdmaType"],
            db.enum("ENUM_HCCL_RDMA_TYPE", {**OLD_ENUMS["ENUM_HCCL_RDMA_TYPE"], **ENUMS["ENUM_HCCL_RDMA_TYPE"]}),
            NOTHING,
        ),
        enumerated(rows["transportType"], db.enum("ENUM_HCCL_TRANSPORT_TYPE", ENUMS["ENUM_HCCL_TRANSPORT_TYPE"]), ("N/A",)),
        enumerated(rows["linkType"], db.enum("ENUM_HCCL_LINK_TYPE", ENUMS["ENUM_HCCL_LINK_TYPE"]), ("N/A",)),
        enumerated(rows["dataType"], db.enum("ENUM_HCCL_DATA_TYPE", ENUMS["ENUM_HCCL_DATA_TYPE"]), ("N/A",)),
    )
    number = collectives.select(pl.col("comm_op_id").alias("opId"), pl.int_range(pl.len()).alias("collective"))
    timed = tasks.drop("taskType", "connectionId")
    timed = _once(timed.join(rows.select("globalTaskId"), on="globalTaskId", how="semi", maintain_order="left"))
    frame = rows.join(timed, on="globalTaskId", how="inner", maintain_order="left")
    db.lost(issues.UNMATCHED_COMMUNICATION, rows.height - frame.height, "COMMUNICATION_TASK_INFO")
    frame = frame.join(number.drop_nulls().unique("opId", keep="first"), on="opId", how="left", maintain_order="left")
    # A capture of level 0 knows the tasks but nothing about them.
    unknown = pl.col("srcRank", "dstRank", "planeId", "size")
    notify = pl.col("notifyId")
    return ALL_TABLES["transfers"].conform(
        frame.with_columns(
            pl.when(~unknown.is_in([NONE32, -1])).then(unknown),
            pl.when(~notify.is_in([NO_NOTIFY, NO_NOTIFY_OLD])).then(notify).cast(pl.String).alias("notify_id"),
            (pl.col("endNs") - pl.col("startNs")).cast(pl.Float64).alias("duration_ns"),
            pl.col("isMaster").cast(pl.Boolean).alias("is_master"),
            pl.col("bandwidth") / 1e9,
        ).rename({"deviceId": "device", **SPAN, **_WHERE, **TRANSFER})
    )


def _connection() -> pl.Expr:
    connection = pl.col("connectionId")
    return pl.when(~connection.is_in([NO_CONNECTION, NONE32])).then(connection)

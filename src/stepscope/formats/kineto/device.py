# SPDX-License-Identifier: Apache-2.0
"""What ran on devices in a Kineto trace: kernels, copies, and the collectives among them."""

from __future__ import annotations

import polars as pl

from stepscope.formats.gpu.collectives import COLLECTIVE_KERNEL
from stepscope.formats.kineto.host import external_id
from stepscope.formats.kineto.texts import rewrite_categories, triple_text, volume
from stepscope.tables import TEXT

_COPIES = {
    "HtoD": "host to device", "DtoH": "device to host", "DtoD": "device to device", "HtoH": "host to host", "PtoP": "peer to peer",
    "HOST_TO_DEVICE": "host to device", "DEVICE_TO_HOST": "device to host", "DEVICE_TO_DEVICE": "device to device",
}  # fmt: skip
_MTIA_KINDS = {"dma_request": "memcpy", "event_wait": "event", "event_record": "event"}
_PLAIN = ("kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset")
HOST = "CPU"  # label of its process
_WHOLE_CONTEXT = 2**32 - 1  # stream of a wait for all streams

COLLECTIVE_COLUMNS = (
    "op_type", "count", "data_type", "rank_size", "group", "group_name", "members", "src_rank", "dst_rank", "seq",
)  # fmt: skip


def collective_arguments() -> list[pl.Expr]:
    return [
        pl.col("args.Collective name").cast(TEXT).alias("op_type"),
        pl.col("args.In msg nelems").alias("count"),
        pl.col("args.dtype").cast(TEXT).alias("data_type"),
        pl.col("args.Group size").alias("rank_size"),
        pl.coalesce("args.Process Group Name", "args.Process Group ID").cast(TEXT).alias("group"),
        pl.col("args.Process Group Description").cast(TEXT).alias("group_name"),
        _members().cast(TEXT).alias("members"),
        pl.col("args.Src Rank").alias("src_rank"),
        pl.col("args.Dst Rank").alias("dst_rank"),
        pl.col("args.Seq").alias("seq"),
    ]


def _members() -> pl.Expr:
    """Ranks of a group from a text such as `[0, 1]`; lists that torch cut off (`[0, 1, ...]`) are not known."""
    text = pl.col("args.Process Group Ranks").str.replace_all(r"[\[\]\s\"]", "")
    return pl.when(text.str.contains(r"^\d+(,\d+)*$")).then(text)


def collective_op_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    """Operators that describe a collective; older traces do not describe it on the kernel."""
    described = events.filter(pl.col("args.Collective name").is_not_null())
    return described.select(external_id().alias("external_id"), *collective_arguments())


def task_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    name = pl.col("name")
    of_name = name.str.extract(r"(HtoD|DtoH|DtoD|HtoH|PtoP)")
    kind = _kind()
    correlation = pl.col("args.correlation")
    return events.select(
        "start_ns", "end_ns", "duration_ns", *collective_arguments(),
        # 2021 wrote the stream only into the lane's name.
        device=pl.coalesce("args.device", "pid"),
        stream=pl.coalesce("args.stream", "tid"),
        kind=kind.cast(TEXT),
        # The others say no more than the kind.
        task_type=pl.when(~pl.col("cat").str.to_lowercase().is_in(_PLAIN)).then("cat").cast(TEXT),
        name=name.cast(TEXT),
        connection_id=pl.when(correlation > 0).then(correlation),
        external_id=external_id(),
        grid=pl.col("args.grid").cast(TEXT),
        block=pl.col("args.block").cast(TEXT),
        occupancy="args.est. achieved occupancy %",
        registers="args.registers per thread",
        shared_memory="args.shared memory",
        blocks_per_sm="args.blocks per SM",
        bytes=pl.coalesce("args.bytes", "args.size"),
        bandwidth="args.memory bandwidth (GB/s)",
        copy_direction=pl.when(kind == "memcpy").then(
            pl.coalesce(of_name, "args.direction", "args.kind").replace_strict(_COPIES, default=None, return_dtype=pl.String())
        ).cast(TEXT),
    )  # fmt: skip


def _kind() -> pl.Expr:
    """Kind of a task by its category; what only says that a device did something is `other`."""
    category = pl.col("cat").str.to_lowercase()
    return (
        pl.when(category == "kernel").then(pl.lit("compute"))
        .when(category.str.ends_with("memcpy")).then(pl.lit("memcpy"))
        .when(category.str.ends_with("memset")).then(pl.lit("memset"))
        .when(category.str.contains(r"_(?:event|notifier)$")).then(pl.lit("event"))
        .when(category == "collective_comm").then(pl.lit("communication"))
        .when(category == "mtia_ccp_events")
        .then(pl.col("name").replace_strict(_MTIA_KINDS, default="compute", return_dtype=pl.String()))
        .otherwise(pl.lit("other"))
    )  # fmt: skip


def strange_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    """Spans of unknown categories as tasks, with what may tell whether they are a device's."""
    marked = pl.any_horizontal(pl.col("args.device", "args.stream").is_not_null())
    return pl.concat([task_rows(events), events.select("pid", "cat", marked=marked)], how="horizontal")


def on_device(rows: pl.DataFrame, labels: dict[int, str]) -> pl.Series:
    """Which of the strange rows are a device's: by the label of their process, else by naming a device or a stream."""
    label = pl.col("pid").replace_strict(labels, default=None, return_dtype=pl.String()) if labels else pl.lit(None, pl.String)
    return rows.select(pl.when(label.is_not_null()).then(label != HOST).otherwise("marked").alias("device")).to_series()


def wait_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    """Synchronisation that the driver reports beside the work: what waited did not work (`cuda_sync`)."""
    known = {"stream": pl.coalesce("args.stream", "tid"), "correlation": pl.col("args.correlation")}
    event = {name: pl.col(f"args.wait_on_{name}") for name in ("stream", "cuda_event_id", "cuda_event_record_corr_id")}
    return events.select(
        "start_ns", "end_ns", "duration_ns",
        device=pl.coalesce("args.device", "pid"),
        stream=pl.when(known["stream"].is_between(0, _WHOLE_CONTEXT, closed="left")).then(known["stream"]),
        name=pl.col("name").cast(TEXT),
        connection_id=pl.when(known["correlation"] > 0).then(known["correlation"]),
        external_id=external_id(),
        event_id=event["cuda_event_id"],
        event_stream=event["stream"],
        event_connection_id=event["cuda_event_record_corr_id"],
    )  # fmt: skip


def tasks(rows: pl.DataFrame, described: pl.DataFrame) -> pl.DataFrame:
    """All device tasks in the order of `kernels`, with what is known about collectives."""
    is_collective = rewrite_categories(rows["name"], lambda name: name.str.contains(COLLECTIVE_KERNEL), pl.Boolean())
    rows = rows.with_columns(
        kind=pl.when((pl.col("kind") == "compute") & (is_collective | pl.col("op_type").is_not_null()))
        .then(pl.lit("communication", TEXT))
        .otherwise("kind"),
        block_num=rewrite_categories(rows["grid"], volume, pl.Int64()),
        grid=rewrite_categories(rows["grid"], triple_text),
        block=rewrite_categories(rows["block"], triple_text),
        external_id=pl.lit(None, pl.Int64) if _repeats_correlation(rows) else pl.col("external_id"),
    )
    # The first operator of an id is the collective itself; its helpers come later.
    collective_ops = described.drop_nulls("external_id").unique("external_id", keep="first", maintain_order=True)
    beside = rows.select("external_id").join(collective_ops, on="external_id", how="left", maintain_order="left")
    rows = rows.with_columns(pl.coalesce(rows[name], beside[name]).alias(name) for name in COLLECTIVE_COLUMNS)
    return rows.sort("device", "start_ns", maintain_order=True)


def _repeats_correlation(rows: pl.DataFrame) -> bool:
    """Traces of 2021 and 2022 wrote the correlation id as External id; it does not name an operator."""
    both = rows.select("external_id", "connection_id").drop_nulls()
    return both.height > 0 and bool((both["external_id"] == both["connection_id"]).all())

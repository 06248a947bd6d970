# SPDX-License-Identifier: Apache-2.0
"""What ran on the host in a Kineto trace: operators, Python calls, runtime calls, annotations, steps, memory, arrows."""

from __future__ import annotations

import polars as pl

from stepscope.formats.kineto.texts import dtypes_text, rewrite_categories, shapes_text
from stepscope.tables import ALL_TABLES, TEXT

# c10::DeviceType
_DEVICE_TYPES = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia", 20: "privateuseone"}
_USER_SCOPE, _BACKWARD_SCOPE, _FUNCTION_SCOPE = 7, 1, 0


def _text(name: str) -> pl.Expr:
    """An argument as category; empty means absent."""
    value = pl.col(f"args.{name}")
    return pl.when(value != "").then(value).cast(TEXT)


def external_id() -> pl.Expr:
    value = pl.coalesce("args.External id", "args.external id")
    return pl.when(value != 0).then(value)


def op_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    """Operators of one chunk, shapes still as JSON."""
    forward = pl.col("args.Fwd thread id")
    return events.select(
        "pid", "tid", "start_ns", "end_ns",
        name=pl.col("name").cast(TEXT),
        seq=pl.when(pl.col("args.Sequence number") >= 0).then("args.Sequence number"),
        fwd_thread=pl.when(forward > 0).then(forward),
        # The format does not record the scope; only autograd names a forward thread.
        scope=pl.when(pl.col("cat") == "user_annotation").then(_USER_SCOPE).when(forward > 0).then(_BACKWARD_SCOPE)
        .otherwise(_FUNCTION_SCOPE).cast(pl.UInt8),
        is_async=pl.lit(False),
        end_tid="tid",
        shapes=pl.coalesce("args.Input Dims", "args.Input dims").cast(TEXT),
        dtypes=_text("Input type"),
        stack=_text("Call stack"),
        modules=_text("Module Hierarchy"),
        flops="args.Flops",
        external_id=external_id(),
    )  # fmt: skip


def ops(rows: pl.DataFrame) -> pl.DataFrame:
    rows = rows.with_columns(
        shapes=rewrite_categories(rows["shapes"], shapes_text), dtypes=rewrite_categories(rows["dtypes"], dtypes_text)
    )
    order = rows.select("start_ns", "end_ns").with_row_index("row").sort(
        "start_ns", "end_ns", "row", descending=[False, True, False]
    )  # fmt: skip
    return ALL_TABLES["ops"].conform(rows[order["row"]])


def python_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    name = pl.col("name")
    return events.select(
        "pid", "tid", "start_ns", "end_ns",
        name=name.cast(TEXT),
        kind=pl.when(name.str.starts_with("nn.Module: ")).then(pl.lit("module"))
        .when(name.str.starts_with("<")).then(pl.lit("c")).otherwise(pl.lit("python")).cast(TEXT),
        call_id="args.Python id",
        parent_id=pl.col("args.Python parent id").fill_null(0),
        module_id="args.Python module id",
    )  # fmt: skip


def api_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select(
        "pid", "tid", "start_ns", "end_ns",
        level=pl.col("cat").cast(TEXT),
        name=pl.col("name").cast(TEXT),
        connection_id=pl.when(pl.col("args.correlation") > 0).then("args.correlation"),
        external_id=pl.coalesce("args.External id", "args.external id"),
    )  # fmt: skip


def annotation_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select(
        message=pl.col("name").cast(TEXT),
        connection_id=external_id(),
        device=pl.coalesce("args.device", "pid"),
        stream=pl.coalesce("args.stream", "tid"),
        device_start_ns="start_ns",
        device_end_ns="end_ns",
    )


def marks(rows: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """Annotations that reached a device, each with the range on the host that it mirrors."""
    ranges = operators.filter(pl.col("scope") == _USER_SCOPE, pl.col("external_id").is_not_null()).unique(
        "external_id", keep="first"
    )
    ranges = ranges.select("pid", "tid", "start_ns", "end_ns", end_tid="tid", connection_id="external_id")
    both = rows.join(ranges, on="connection_id", how="left", maintain_order="left")
    # Without a host part the mark gets the device's span.
    both = both.with_columns(
        start_ns=pl.coalesce("start_ns", "device_start_ns"),
        end_ns=pl.coalesce("end_ns", "device_end_ns"),
        kind=pl.lit("annotation"),
    )
    return ALL_TABLES["marks"].conform(both)


def steps(operators: pl.DataFrame) -> pl.DataFrame:
    names = operators["name"].unique().cast(pl.String)
    numbered = names.to_frame("name").select(pl.col("name").cast(TEXT), step=pl.col("name").str.extract(r"^ProfilerStep#(\d+)$"))
    found = operators.join(numbered.drop_nulls("step"), on="name", how="inner", maintain_order="left")
    return ALL_TABLES["steps"].conform(found.select("pid", "start_ns", "end_ns", pl.col("step").cast(pl.Int64, strict=False)))


def memory_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    device_type, device = pl.col("args.Device Type"), pl.col("args.Device Id")
    size = pl.col("args.Bytes")
    return events.select(
        "pid", "tid",
        time_ns="start_ns",
        component=pl.lit("PTA").cast(TEXT),
        device_type=device_type.replace_strict(_DEVICE_TYPES, default=None, return_dtype=pl.String()).cast(TEXT),
        device=pl.when((device >= 0) & (device_type != 0)).then(device),
        action=pl.when(size >= 0).then(pl.lit("malloc")).otherwise(pl.lit("free")).cast(TEXT),
        inner=pl.lit(True),
        ptr="args.Addr",
        bytes=size,
        # On allocators that keep no totals, 0 means unknown.
        total_allocated="args.Total Allocated",
        total_reserved="args.Total Reserved",
    )  # fmt: skip


def flow_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    kind = pl.col("to").str.strip_prefix("flow:").cast(TEXT)
    return events.select("ph", "pid", "tid", "start_ns", kind=kind, id=pl.col("id").cast(pl.Int64, strict=False))


def flows(rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Arrows whose both ends are there, and the number of ends without their other end."""
    key = ["kind", "id"]
    start = rows.filter(pl.col("ph") == "s").select(*key, from_pid="pid", from_tid="tid", from_ns="start_ns")
    end = rows.filter(pl.col("ph") == "f").select(*key, to_pid="pid", to_tid="tid", to_ns="start_ns")
    paired = start.unique(key, keep="first", maintain_order=True).join(end, on=key, how="inner", maintain_order="left")
    loose = start.join(end, on=key, how="anti").height + end.join(start, on=key, how="anti").height
    return ALL_TABLES["flows"].conform(paired), loose

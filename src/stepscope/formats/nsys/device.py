# SPDX-License-Identifier: Apache-2.0
"""What ran on GPUs in an export: kernels, copies, fills, whole graphs, waits."""

from __future__ import annotations

import polars as pl

from stepscope.formats.gpu.collectives import COLLECTIVE_KERNEL
from stepscope.formats.nsys import schema
from stepscope.formats.nsys.database import Export, pid_of
from stepscope.formats.sqlite.texts import enumerated, per_text
from stepscope.tables import ALL_TABLES, TEXT

_NO_STREAM = 1 << 31  # streams of waits for a whole context have numbers beyond


def tasks(db: Export) -> tuple[pl.DataFrame, pl.DataFrame]:
    """All device tasks in the order of `kernels`, and table `waits`: what waits does no work."""
    parts = [_kernels(db), _copies(db), _fills(db), _graphs(db)]
    rows = pl.concat([part for part in parts if part.height] or parts[:1], how="diagonal_relaxed")
    # Waits name device 0 whatever their context is on.
    owners = rows.group_by("pid", "contextId").agg(owner=pl.col("device").first())
    waits = _waits(db)
    known = waits.select("pid", "contextId").join(
        owners, on=["pid", "contextId"], how="left", maintain_order="left", nulls_equal=True
    )
    waits = waits.with_columns(device=pl.coalesce(known["owner"], "device"))
    placed = [_on_gpus(db, part).sort("device", "start_ns", maintain_order=True) for part in (rows, waits)]
    return placed[0], ALL_TABLES["waits"].conform(placed[1])


def _common(db: Export) -> list[pl.Expr]:
    stream = pl.col("streamId")
    return [
        pl.col("start_ns"), pl.col("end_ns"), (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64).alias("duration_ns"),
        pl.col("deviceId").cast(pl.Int32, strict=False).alias("device"),
        pl.when(stream.is_between(0, _NO_STREAM)).then(stream).alias("stream"),
        pid_of("globalPid").alias("pid"),
        pl.col("contextId"),
        db.connection("globalPid").alias("connection_id"),
    ]  # fmt: skip


def _kernels(db: Export) -> pl.DataFrame:
    rows = db.spans(schema.KERNELS)
    name = pl.coalesce("demangledName", "shortName")
    rows = rows.select(
        *_common(db),
        name=name,
        kernel_name=pl.col("mangledName"),
        grid=_triple("grid"),
        block=_triple("block"),
        block_num=_volume("grid"),
        registers="registersPerThread",
        shared_memory=pl.col("staticSharedMemory").fill_null(0) + pl.col("dynamicSharedMemory").fill_null(0),
    )
    collective = per_text(rows["name"], lambda text: text.str.contains(COLLECTIVE_KERNEL), pl.Boolean())
    return rows.with_columns(kind=pl.when(collective).then(pl.lit("communication")).otherwise(pl.lit("compute")).cast(TEXT))


def _triple(what: str) -> pl.Expr:
    axes = [pl.col(f"{what}{axis}") for axis in "XYZ"]
    return pl.concat_str(axes, separator=",").cast(TEXT)


def _volume(what: str) -> pl.Expr:
    axes = [pl.col(f"{what}{axis}") for axis in "XYZ"]
    fits = pl.all_horizontal(axis.is_between(0, 1 << 31) for axis in axes)
    # Two factors of 31 bits fit; the product of three is damage when it does not.
    product = axes[0].cast(pl.Float64) * axes[1] * axes[2]
    return pl.when(fits & (product < 2.0**62)).then(axes[0] * axes[1] * axes[2])


def _copies(db: Export) -> pl.DataFrame:
    rows = db.spans(schema.COPIES)
    direction = enumerated(rows["copyKind"], schema.COPY_KINDS)
    words = pl.coalesce(pl.lit(direction).cast(pl.String), pl.lit("unknown direction"))
    return rows.with_columns(copy_direction=direction).select(
        *_common(db),
        "bytes",
        "copy_direction",
        name=pl.format("Memcpy {}", words).cast(TEXT),
        kind=pl.lit("memcpy").cast(TEXT),
    )


def _fills(db: Export) -> pl.DataFrame:
    rows = db.spans(schema.FILLS)
    return rows.select(*_common(db), "bytes", name=pl.lit("Memset").cast(TEXT), kind=pl.lit("memset").cast(TEXT))


def _graphs(db: Export) -> pl.DataFrame:
    """Graphs recorded as one task: their kernels are not in the export (docs/formats/nsys.md 2.4)."""
    rows = db.spans(schema.GRAPHS)
    name = pl.format("CUDA graph {}", pl.col("graphId").cast(pl.String).fill_null("?"))
    return rows.select(*_common(db), name=name.cast(TEXT), kind=pl.lit("compute").cast(TEXT))


def _waits(db: Export) -> pl.DataFrame:
    rows = db.spans(schema.WAITS)
    kinds = db.enum("ENUM_CUPTI_SYNC_TYPE", schema.SYNC_KINDS, text="label")
    name = enumerated(rows["syncType"], kinds).fill_null("Synchronization")
    return rows.with_columns(name=name).select(*_common(db), "name", event_id=pl.when(pl.col("eventId") > 0).then("eventId"))


def _on_gpus(db: Export, rows: pl.DataFrame) -> pl.DataFrame:
    """Devices as the machine numbers them; a process may see fewer, or in another order."""
    seen = db.table("TARGET_INFO_CUDA_DEVICE").drop_nulls(["gpuId", "cudaId", "pid"]).unique(["pid", "cudaId"], keep="first")
    gpus = seen.select(
        "pid", device=pl.col("cudaId").cast(pl.Int32, strict=False), gpu=pl.col("gpuId").cast(pl.Int32, strict=False)
    )
    placed = rows.select("pid", "device").join(gpus, on=["pid", "device"], how="left", maintain_order="left")
    return rows.with_columns(device=pl.coalesce(placed["gpu"], "device"))

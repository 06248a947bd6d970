# SPDX-License-Identifier: Apache-2.0
"""Arrows between related slices: forward and backward, operator and kernel, enqueue and dequeue (docs/formats/outputs.md 3.1)."""

from __future__ import annotations

import polars as pl

from stepscope.tables import ALL_TABLES


def forward_backward(ops: pl.DataFrame) -> pl.DataFrame:
    """Forward operator and backward range of each sequence number, as a trace connects them.

    Of several with one number the last to start counts on either side; pairs on one thread are left out.

    Returns:
        id (the sequence number), forward and backward (rows of `ops`).
    """
    pairs = _pairs(_numbered(ops))
    return pairs.filter(pl.col("forward_tid") != pl.col("backward_tid")).select("id", "forward", "backward")


def forward_backward_links(ops: pl.DataFrame) -> pl.DataFrame:
    """The same as a database connects them: the last to end counts, and pairs on one thread are kept.

    The reference takes the last record of the file, and records are written when their range ends.
    """
    by_end = _numbered(ops).reverse().sort("end_ns", maintain_order=True)
    return _pairs(by_end).select("id", "forward", "backward")


def _numbered(ops: pl.DataFrame) -> pl.DataFrame:
    row = pl.int_range(pl.len(), dtype=pl.Int64).alias("row")
    return ops.select("seq", "tid", "fwd_thread", "end_ns", row).filter(pl.col("seq") >= 0)


def _pairs(numbered: pl.DataFrame) -> pl.DataFrame:
    is_backward = pl.col("fwd_thread").is_not_null() & (pl.col("fwd_thread") != 0)
    sides = [
        numbered.filter(chosen)
        .filter(pl.col("seq").is_last_distinct())
        .select(pl.col("seq").alias("id"), pl.col("row").alias(name), pl.col("tid").alias(f"{name}_tid"))
        for name, chosen in (("forward", ~is_backward), ("backward", is_backward))
    ]
    return sides[0].join(sides[1], on="id").sort("id")


def forward_backward_flows(ops: pl.DataFrame) -> pl.DataFrame:
    """The same pairs as rows of table `flows`, those that a trace shows."""
    pairs = forward_backward(ops)
    ends = [
        ops.select(pl.col("pid", "tid", "start_ns").gather(pairs[side])).rename(
            {"pid": f"{end}_pid", "tid": f"{end}_tid", "start_ns": f"{end}_ns"}
        )
        for side, end in (("forward", "from"), ("backward", "to"))
    ]
    flows = pl.concat([pairs.select("id", pl.lit("fwdbwd").alias("kind")), *ends], how="horizontal")
    return ALL_TABLES["flows"].conform(flows)


def enqueue_to_dequeue(queue: pl.DataFrame) -> pl.DataFrame:
    """Pairs of table `queue` with one task number: correlation_id, enqueue, dequeue (rows of `queue`)."""
    numbered = queue.select("correlation_id", "kind", row=pl.int_range(pl.len(), dtype=pl.Int64)).drop_nulls("correlation_id")
    sides = [
        numbered.filter(pl.col("kind") == kind)
        .unique("correlation_id", keep="first")
        .select("correlation_id", pl.col("row").alias(kind))
        for kind in ("enqueue", "dequeue")
    ]
    return sides[0].join(sides[1], on="correlation_id").sort("enqueue")

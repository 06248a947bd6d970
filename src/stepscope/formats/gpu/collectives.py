# SPDX-License-Identifier: Apache-2.0
"""Collectives of NCCL and RCCL: kernels that are known by their names."""

from __future__ import annotations

import polars as pl

from stepscope.formats.sqlite.texts import per_text
from stepscope.tables import ALL_TABLES

COLLECTIVE_KERNEL = r"(?i)^(void )?(nccl|rccl|msccl)"
_COLLECTIVE_WORDS = (
    ("allreduce", "allreduce"), ("reducescatter", "reduce_scatter"), ("allgather", "all_gather"), ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"), ("sendrecv", "sendrecv"), ("reduce", "reduce"),
)  # fmt: skip
# Bytes of an element, by the words of c10::ScalarType.
_SIZES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "Long": 8, "Double": 8,
    "ComplexFloat": 8, "ComplexDouble": 16, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip


def collectives(rows: pl.DataFrame) -> pl.DataFrame:
    """The collectives among the tasks; `rows` are in the order of `kernels`."""
    found = rows.with_columns(kernel=pl.int_range(pl.len(), dtype=pl.Int64)).filter(pl.col("kind") == "communication")
    size = pl.col("data_type").cast(pl.String).replace_strict(_SIZES, default=None, return_dtype=pl.Int64())
    algorithm = per_text(found["name"], lambda name: name.str.extract(r"_(RING|TREE|COLLNET|NVLS)_(?:LL128|LL|SIMPLE)"))
    found = found.with_columns(
        op_type=pl.coalesce("op_type", per_text(found["name"], _collective_of)),
        bytes=pl.col("count") * size,
        alg_type=algorithm,
    )
    return ALL_TABLES["collectives"].conform(found)


def _collective_of(name: pl.Expr) -> pl.Expr:
    """Kind of collective from a kernel name such as ncclKernel_AllReduce_RING_LL_Sum_float."""
    plain = name.str.to_lowercase().str.replace_all("_", "", literal=True)
    collective = pl.lit(None, pl.String)
    for word, kind in reversed(_COLLECTIVE_WORDS):
        collective = pl.when(plain.str.contains(word, literal=True)).then(pl.lit(kind)).otherwise(collective)
    return collective

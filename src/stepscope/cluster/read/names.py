# SPDX-License-Identifier: Apache-2.0
"""One name per communication operator, whatever library wrote it."""

from __future__ import annotations

import polars as pl

# The first that a name holds, without underscores and in lower case, wins.
_WORDS = (
    ("reducescatter", "reducescatter"), ("allreduce", "allreduce"), ("allgather", "allgather"), ("alltoall", "alltoall"),
    ("batchsendrecv", "batchsendrecv"), ("sendrecv", "sendrecv"), ("coalesced", "coalesced"), ("broadcast", "broadcast"),
    ("barrier", "barrier"), ("receive", "recv"), ("recv", "recv"), ("send", "send"), ("reduce", "reduce"), ("scatter", "scatter"),
    ("gather", "gather"),
)  # fmt: skip


def operator_names(texts: pl.Series) -> pl.Series:
    """`operator_name` of each text; of many calls few are different."""
    known = texts.unique()
    names = known.to_frame("text").select(operator_name(pl.col("text"))).to_series()
    named: pl.Series = texts.replace_strict(known, names)
    return named


def operator_name(text: pl.Expr) -> pl.Expr:
    """hcom_allReduce_ and ncclDevKernel_AllReduce_Sum_f32_RING_LL are both allreduce; unknown ones stay as they are."""
    plain = text.str.to_lowercase().str.replace_all("_", "", literal=True)
    found = text.fill_null("?")
    for word, name in reversed(_WORDS):
        found = pl.when(plain.str.contains(word, literal=True)).then(pl.lit(name)).otherwise(found)
    return found

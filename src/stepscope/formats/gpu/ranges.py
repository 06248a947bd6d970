# SPDX-License-Identifier: Apache-2.0
"""Ranges that a program sets on the host (NVTX, roctx), and the operators of PyTorch among them."""

from __future__ import annotations

import polars as pl

from stepscope.tables import ALL_TABLES, TEXT

_FUNCTION_SCOPE, _USER_SCOPE = 0, 7
# What torch.autograd.profiler.emit_nvtx writes after the name of an operator (docs/formats/nsys.md 5.1).
_OPERATOR_TEXT = (
    r"^(?<name>.+?)(?:, seq = (?<seq>\d+))?(?:, op_id = (?<op_id>\d+))?(?:, sizes = (?<sizes>\[.*?\]))?(?:, input_op_ids = .*)?$"
)


def operators(ranges: pl.DataFrame) -> pl.DataFrame:
    """Table `ops` of nested ranges (pid, tid, start_ns, end_ns, message): operators where torch wrote them, else user ranges.

    Few texts are alike, because each holds the number of its call: they are cut by columns, not by distinct text.
    """
    parts = ranges["message"].str.extract_groups(_OPERATOR_TEXT).struct.unnest()
    by_torch = parts["op_id"].is_not_null() | parts["seq"].is_not_null() | parts["sizes"].is_not_null()
    operator = by_torch & (parts["name"].str.contains("::", literal=True) | parts["seq"].is_not_null())
    rows = ranges.select(
        "pid", "tid", "start_ns", "end_ns",
        name=parts["name"].cast(TEXT),
        seq=parts["seq"].cast(pl.Int64, strict=False),
        shapes=_shapes(parts["sizes"]).cast(TEXT),
        scope=pl.when(operator).then(_FUNCTION_SCOPE).otherwise(_USER_SCOPE).cast(pl.UInt8),
        is_async=pl.lit(False),
        end_tid="tid",
    )  # fmt: skip
    return ALL_TABLES["ops"].conform(rows.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True))


def _shapes(sizes: pl.Series) -> pl.Series:
    """`[[2, 3], [], [3, 4]]` becomes `2,3;;3,4`."""
    joined = sizes.str.replace_all(" ", "", literal=True).str.replace_all("],[", ";", literal=True)
    return joined.str.replace_all(r"[\[\]]", "")

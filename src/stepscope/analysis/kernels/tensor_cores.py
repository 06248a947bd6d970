# SPDX-License-Identifier: Apache-2.0
"""Which GPU kernels use tensor cores, and which operators could, judged by their names: a trace says no more."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analysis.link.attribution import launched
from stepscope.analysis.link.op_tree import subtree_sums
from stepscope.analysis.operators import FINEST
from stepscope.tables import Tables

# Shapes of matrix instructions (884, 1688, 16816, …) and the families of libraries that are built on them.
_KERNELS = (
    r"(?i)(884|1688|16816|8816|hmma|imma|wgmma|tensorop|xmma_|cutlass_80_tensor|nvjet|first_layer_wgrad|conv1x1|conv2d_c1_k1|"
    r"direct_group)"
)
_OPERATORS = (
    "aten::_convolution", "aten::_convolution_nogroup", "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::conv_tbc",
    "aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d", "aten::convolution", "aten::cudnn_convolution",
    "aten::cudnn_convolution_transpose", "aten::convolution_backward", "aten::prelu", "aten::addmm", "aten::addmv", "aten::addr",
    "aten::matmul", "aten::mm", "aten::mv", "aten::linear", "aten::addbmm", "aten::baddbmm", "aten::bmm", "aten::chain_matmul",
    "aten::linalg_multi_dot", "aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell", "aten::lstm_cell", "aten::gru_cell",
    "aten::einsum", "aten::scaled_dot_product_attention", "aten::_scaled_mm",
)  # fmt: skip


def uses(names: pl.Series) -> pl.Series:
    """Whether each kernel uses tensor cores; each different name is looked at once."""
    distinct = names.unique().drop_nulls()
    hits = distinct.filter(distinct.cast(pl.String).str.contains(_KERNELS))
    return names.is_in(hits.implode()).fill_null(False)


def can_use(name: pl.Expr) -> pl.Expr:
    return name.cast(pl.String).is_in(_OPERATORS)


def with_tensor_core_times(calls: pl.DataFrame, tables: Tables) -> pl.DataFrame:
    """Rows of `operator_calls` whose `aicore` times are those on tensor cores; unchanged where there are no kernels or calls."""
    if not tables.kernels.height or not tables.ops.height:
        return calls
    return calls.with_columns(time.gather(calls["op"]) for time in tensor_core_times(tables))


def tensor_core_times(tables: Tables) -> list[pl.Series]:
    """For each row of `ops` the device time on tensor cores, as `aicore_self_ns` and `aicore_total_ns`."""
    tasks = launched(tables.kernels, tables.collectives).drop_nulls("op")
    tasks = tasks.filter(uses(tasks["name"]))
    own = np.zeros(tables.ops.height, dtype=np.int64)
    np.add.at(own, tasks["op"].to_numpy(), (tasks["duration_ns"] * FINEST).round().cast(pl.Int64).to_numpy())
    (total,) = subtree_sums(tables.ops["parent"], own)
    return [pl.Series("aicore_self_ns", own / FINEST), pl.Series("aicore_total_ns", total / FINEST)]

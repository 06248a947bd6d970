# SPDX-License-Identifier: Apache-2.0
"""The reference page of all tables, made from the schema: `python -m stepscope.tables.reference`, and in Chinese."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stepscope.tables.cluster import CLUSTER_TABLES
from stepscope.tables.schema import Column, Table
from stepscope.tables.tableset import ALL_TABLES

_INTRO = """# Tables

[中文](tables.zh-CN.md)

Every capture, whatever it was read from, becomes these tables. `stepscope.open(path).ops` is a polars frame;
`stepscope analyse PATH --export parquet` writes each as a Parquet file. Parquet files and SQL have keys besides:
`id`, the row number, in `ops`, `kernels` and `collectives`, and `op_id`, `kernel_id`, `collective_id`, `parent_id` for columns
that hold a row number of these (`kernels.op_id = ops.id`).

Times are Int64 nanoseconds on the host's epoch clock, spans are half-open, missing is null.
A column that names a *row* of another table holds its row number there, counted from 0.

This page is generated from the schema (`make docs`).
"""

_INTRO_ZH = """# 数据表

[English](tables.md)

采集数据无论来自什么格式，都变成这些表。`stepscope.open(path).ops` 是 polars frame；`stepscope analyse PATH --export parquet`
把每张表写成 Parquet 文件。Parquet 文件和 SQL 另有键：`ops`、`kernels`、`collectives` 中的 `id`（行号），以及保存这些行号的列
`op_id`、`kernel_id`、`collective_id`、`parent_id`（`kernels.op_id = ops.id`）。

时间为主机 epoch 时钟上的 Int64 纳秒，区间左闭右开，缺失为 null。
指向另一张表*行*的列保存那里的行号，从 0 开始。

本页由表结构生成（`make docs`）。
"""

_CLUSTER = """# Tables of a run

The digests of all ranks ([cluster.md](cluster.md)); `stepscope cluster ROOT --digests DIR` writes each as a Parquet file.
"""

_CLUSTER_ZH = """# run 的数据表

全部 rank 的摘要（[cluster.zh-CN.md](cluster.zh-CN.md)）；`stepscope cluster ROOT --digests DIR` 把每张表写成 Parquet 文件。
"""


def page(chinese: Mapping[str, str] | None = None) -> str:
    """The page; in Chinese where the Chinese of every description is given."""
    intro, cluster = (_INTRO, _CLUSTER) if chinese is None else (_INTRO_ZH, _CLUSTER_ZH)
    one_rank, run = ([_section(table, chinese) for table in tables.values()] for tables in (ALL_TABLES, CLUSTER_TABLES))
    return "\n".join([intro, *one_rank, cluster, *run])


def _section(table: Table, chinese: Mapping[str, str] | None) -> str:
    lines = [f"## {table.name}", "", table.doc if chinese is None else chinese[table.doc]]
    if table.sorted_by:
        names = ", ".join(f"`{name}`" for name in table.sorted_by)
        lines += ["", f"Sorted by {names}." if chinese is None else f"按 {names} 排序。"]
    if table.extra is not None:
        lines += [
            "",
            f"Further columns of type {table.extra} may follow." if chinese is None else f"其后可有更多 {table.extra} 类型的列。",
        ]
    return "\n".join([*lines, "", *column_rows(table.columns, chinese), ""])


def column_rows(columns: Iterable[Column], chinese: Mapping[str, str] | None) -> list[str]:
    titles = "column | type | unit | meaning" if chinese is None else "列 | 类型 | 单位 | 含义"
    rows = (
        f"| {column.name} | {column.dtype} | {column.unit} | {column.doc if chinese is None else chinese[column.doc]} |"
        for column in columns
    )
    return [f"| {titles} |", "| --- | --- | --- | --- |", *rows]


if __name__ == "__main__":
    print(page(), end="")

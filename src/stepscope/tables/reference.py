# SPDX-License-Identifier: Apache-2.0
"""The reference page of all tables, made from the schema: `python -m stepscope.tables.reference`."""

from __future__ import annotations

from stepscope.tables.cluster import CLUSTER_TABLES
from stepscope.tables.schema import Table
from stepscope.tables.tableset import ALL_TABLES

_INTRO = """# Tables

Every capture, whatever it was read from, becomes these tables. `stepscope.open(path).ops` is a polars frame;
`stepscope analyse PATH --export parquet` writes each as a Parquet file. Parquet files and SQL have keys besides:
`id`, the row number, in `ops`, `kernels` and `collectives`, and `op_id`, `kernel_id`, `collective_id`, `parent_id` for columns
that hold a row number of these (`kernels.op_id = ops.id`).

Times are Int64 nanoseconds on the host's epoch clock, spans are half-open, missing is null.
A column that names a *row* of another table holds its row number there, counted from 0.

This page is generated from the schema (`make docs`).
"""

_CLUSTER = """# Tables of a run

The digests of all ranks ([cluster.md](cluster.md)); `stepscope cluster ROOT --digests DIR` writes each as a Parquet file.
"""


def page() -> str:
    return "\n".join([_INTRO, *map(_section, ALL_TABLES.values()), _CLUSTER, *map(_section, CLUSTER_TABLES.values())])


def _section(table: Table) -> str:
    lines = [f"## {table.name}", "", table.doc]
    if table.sorted_by:
        lines += ["", f"Sorted by {', '.join(f'`{name}`' for name in table.sorted_by)}."]
    if table.extra is not None:
        lines += ["", f"Further columns of type {table.extra} may follow."]
    lines += ["", "| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| {column.name} | {column.dtype} | {column.unit} | {column.doc} |" for column in table.columns]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(page(), end="")

# SPDX-License-Identifier: Apache-2.0
"""The reference page of all views, made from their columns: `python -m stepscope.query.reference`."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.query.relations import columns
from stepscope.query.views.catalogue import VIEWS
from stepscope.query.views.view import View
from stepscope.tables.reference import column_rows

_INTRO = """# Views

[中文](views.zh-CN.md)

Relations that `stepscope query`, `stepscope.query`, the page and `stepscope mcp` compute when a question names them
([query.md](query.md)); the tables themselves are in [tables.md](tables.md). Their columns are fixed: later versions only add some.
Each has `id` and `rank`; parts of a step are explained in [verdict.md](verdict.md).

This page is generated (`make docs`).
"""


_INTRO_ZH = """# 视图

[English](views.md)

SQL 中用到时由 `stepscope query`、`stepscope.query`、页面和 `stepscope mcp` 计算的关系（[query.zh-CN.md](query.zh-CN.md)）；
数据表本身见 [tables.zh-CN.md](tables.zh-CN.md)。列是固定的：以后的版本只会增加。每个视图都有 `id` 和 `rank`；
step 的各部分见 [verdict.zh-CN.md](verdict.zh-CN.md)。

本页由代码生成（`make docs`）。
"""


def page(chinese: Mapping[str, str] | None = None) -> str:
    """The page; in Chinese where the Chinese of every description is given."""
    return "\n".join([_INTRO if chinese is None else _INTRO_ZH, *(_section(view, chinese) for view in VIEWS.values())])


def _section(view: View, chinese: Mapping[str, str] | None) -> str:
    meaning = view.table.doc if chinese is None else chinese[view.table.doc]
    lines = [f"## {view.table.name}", "", meaning, "", "```sql", view.example, "```", ""]
    return "\n".join([*lines, *column_rows(columns(view.table), chinese), ""])


if __name__ == "__main__":
    print(page(), end="")

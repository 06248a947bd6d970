# SPDX-License-Identifier: Apache-2.0
"""The reference page of all views, made from their columns: `python -m stepscope.query.reference`."""

from __future__ import annotations

from stepscope.query.relations import columns
from stepscope.query.views.catalogue import VIEWS
from stepscope.query.views.view import View

_INTRO = """# Views

Relations that `stepscope query`, `stepscope.query`, the page and `stepscope mcp` compute when a question names them
([query.md](query.md)); the tables themselves are in [tables.md](tables.md). Their columns are fixed: later versions only add some.
Each has `id` and `rank`; parts of a step are explained in [verdict.md](verdict.md).

This page is generated (`make docs`).
"""


def page() -> str:
    return "\n".join([_INTRO, *map(_section, VIEWS.values())])


def _section(view: View) -> str:
    lines = [f"## {view.table.name}", "", view.table.doc, "", "```sql", view.example, "```", ""]
    lines += ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| {one.name} | {one.dtype} | {one.unit} | {one.doc} |" for one in columns(view.table)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(page(), end="")

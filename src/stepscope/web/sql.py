# SPDX-License-Identifier: Apache-2.0
"""Questions in SQL over the tables of a capture, as the page asks them (`query/` answers them)."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

from stepscope.capture import store_path
from stepscope.query import QueryError
from stepscope.query.engine import MOST_ROWS, Answer, Engine, Store, StoreChanged
from stepscope.query.relations import columns
from stepscope.query.views.catalogue import VIEWS
from stepscope.query.views.columns import VIEW_TABLES
from stepscope.tables import ALL_TABLES
from stepscope.tables.store import write_store
from stepscope.web.loaded import LoadedCapture
from stepscope.web.problems import Problem, bad_parameter


def sql(engine: Engine, capture: LoadedCapture, body: object) -> dict[str, Any]:
    """The answer of `POST sql`."""
    if not isinstance(body, dict) or not isinstance(body.get("query"), str) or not body["query"].strip():
        raise bad_parameter("query", "text of a SELECT")
    limit = body.get("limit", 1000)
    if type(limit) is not int or not 1 <= limit <= MOST_ROWS:
        raise bad_parameter("limit", f"from 1 to {MOST_ROWS}")
    began = time.perf_counter()
    try:
        frame, more, _ = _ask(engine, capture, body["query"], limit)
    except QueryError as problem:
        status, code = (503, "busy") if problem.busy else (422, "parameter")
        raise Problem(status, code, problem.what, detail=problem.cause, hint=problem.fix) from None
    rows = [list(row) for row in frame.iter_rows()]
    return {"columns": frame.columns, "rows": rows, "truncated": more, "seconds": time.perf_counter() - began}


def schema(capture: LoadedCapture) -> dict[str, Any]:
    """The answer of `GET sql/schema`: what a question can name, and questions to begin with."""
    tables = capture.tables
    declared = {**ALL_TABLES, **VIEW_TABLES}
    listed = []
    for name, table in declared.items():
        if name in ALL_TABLES and not tables[name].height:
            continue
        own = [column.name for column in columns(table)]
        extra = [column for column in tables[name].columns if column not in own] if name in ALL_TABLES else []
        listed.append({"name": name, "kind": "table" if name in ALL_TABLES else "view", "doc": table.doc, "columns": own + extra})
    return {"relations": listed, "examples": [{"name": name, "query": view.example} for name, view in VIEWS.items()]}


def _ask(engine: Engine, capture: LoadedCapture, query: str, limit: int) -> Answer:
    rows = {name: capture.tables[name].height for name in capture.tables.filled()}
    path = str(capture.files.root)
    try:
        return engine.ask([Store(store_path(capture.files), path, rows)], query, limit)
    except StoreChanged:
        # It could not be written, or was built again since this capture was read; what the page shows is what is asked.
        copy = capture.once("copy of the store", lambda: _StoreCopy(capture))
        return engine.ask([Store(copy.folder, path, rows)], query, limit)


class _StoreCopy:
    """The tables of a capture in a folder of their own, removed together with it."""

    def __init__(self, capture: LoadedCapture):
        place = mkdtemp(prefix="stepscope-sql-")  # readable for its owner only
        self._removed = finalize(self, shutil.rmtree, place, ignore_errors=True)
        self.folder = Path(place) / "store"
        write_store(self.folder, capture.tables, [])

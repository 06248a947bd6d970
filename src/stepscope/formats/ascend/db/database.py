# SPDX-License-Identifier: Apache-2.0
"""A database of the Ascend tools: whole tables as frames, by the schema of these tools.

Columns are looked up by name, never by position; absent ones come back as null and are counted, unknown ones are
left alone (docs/formats/outputs.md 0).
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from stepscope.formats.ascend.db.schema import ANALYSIS_DB, OLD_COLUMNS, PROFILER_DB
from stepscope.formats.sqlite.file import SqliteFile
from stepscope.render.sqlite_table import DbColumn


class Database(SqliteFile):
    """An open database; `quality` collects what could not be read."""

    def __enter__(self) -> Database:
        return self

    def frame(self, table: str, *, required: Iterable[str] = (), raw: Iterable[str] = ()) -> pl.DataFrame:
        """The known columns of a table, absent ones as null; string ids are replaced by their text, but for those in `raw`.

        Rows without a value in a `required` column are dropped and counted, as is a damaged table.
        """
        definition = PROFILER_DB.get(table) or ANALYSIS_DB[table]
        wanted = [
            DbColumn(column.name, "I") if column.name in raw else column
            for column in (*definition.columns, *OLD_COLUMNS.get(table, ()))
        ]
        return self.rows(table, wanted, required=required)

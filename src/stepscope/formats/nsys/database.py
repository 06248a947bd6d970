# SPDX-License-Identifier: Apache-2.0
"""An export as an open database: whole tables, times on the epoch, processes told apart."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.nsys import schema
from stepscope.formats.sqlite.file import SqliteFile
from stepscope.tables import issues

_LATEST_NS = 1 << 61  # later times are damage; sums of two below it still fit
_EPOCH_NS = 10**17  # times beyond are on the epoch already: no machine has run for three years
_ID_BITS = 24
_ID_MASK = (1 << _ID_BITS) - 1
_CORRELATION_BITS = 32


class Export(SqliteFile):
    """The tables of one export; `quality` collects what could not be read."""

    strings_table = schema.STRINGS

    def __init__(self, path: Path):
        super().__init__(path)
        self._read: dict[str, pl.DataFrame] = {}
        if not any(table in self.columns for table in schema.SIGNS):
            self.__exit__(None, None, None)
            found = ", ".join(sorted(self.columns)[:5]) or "none"
            raise CaptureError(
                "this database is not an export of Nsight Systems",
                where=str(path),
                cause=f"it has no table of kernels, runtime calls or NVTX ranges; its tables: {found}",
                fix="export the report with: nsys export --type sqlite REPORT.nsys-rep",
            )

    def __enter__(self) -> Export:
        return self

    def table(self, name: str) -> pl.DataFrame:
        """A table as it stands; read once."""
        if name not in self._read:
            self._read[name] = self.rows(name, schema.COLUMNS[name], required=schema.REQUIRED.get(name, ()))
        return self._read[name]

    def spans(self, name: str) -> pl.DataFrame:
        """A table of events with `start_ns` and `end_ns` on the epoch; what ends before it starts is left out and counted."""
        rows = self.table(name)
        valid = pl.col("start").is_between(0, _LATEST_NS) & (pl.col("end").is_null() | pl.col("end").is_between(0, _LATEST_NS))
        whole = rows.filter(valid)
        self.lost(issues.INCOMPLETE_ROW, rows.height - whole.height, f"{name}: a time that cannot be")
        ordered = whole.filter(pl.col("end").is_null() | (pl.col("end") >= pl.col("start")))
        self.lost(issues.ENDS_BEFORE_START, whole.height - ordered.height, name)
        return ordered.with_columns(start_ns=pl.col("start") + self.base_ns, end_ns=pl.col("end") + self.base_ns)

    @cached_property
    def base_ns(self) -> int:
        """What brings the times of the export to the epoch (docs/formats/nsys.md 3)."""
        details = self.table("ANALYSIS_DETAILS").drop_nulls("startTime")
        first = int(details["startTime"][0]) if details.height else None
        if "true" in self.settings.get("EXPORT_PARAM_TIME_NORMALIZE", "") or (first is not None and first > _EPOCH_NS):
            return 0
        session = self.table("TARGET_INFO_SESSION_START_TIME").drop_nulls("utcEpochNs")
        if not session.height or not 0 < session["utcEpochNs"][0] < _LATEST_NS:
            self.lost(issues.INCOMPLETE_CLOCK, 1, "no time of day of the start")
            return 0
        clock = session["systemClockNs"][0]
        start = clock if clock is not None else first or 0
        return int(session["utcEpochNs"][0]) - (int(start) if 0 <= start < _LATEST_NS else 0)

    @cached_property
    def settings(self) -> dict[str, str]:
        rows = self.table("META_DATA_EXPORT").drop_nulls()
        return dict(rows.select("name", "value").iter_rows())

    @cached_property
    def _process_numbers(self) -> dict[int, int]:
        """Processes by number, from 0: correlation ids of two processes may be the same."""
        tasks = (schema.KERNELS, schema.COPIES, schema.FILLS, schema.GRAPHS, schema.WAITS)
        owners = [self.table(table)["globalPid"] for table in tasks] + [self.table(schema.RUNTIME)["globalTid"]]
        found = pl.concat([(owner // (1 << _ID_BITS)).alias("process") for owner in owners]).drop_nulls().unique().sort()
        return {process: number for number, process in enumerate(found.to_list())}

    def connection(self, owner: str) -> pl.Expr:
        """The correlation id of a row, distinct over all processes; `owner` is its globalPid or globalTid."""
        number = (pl.col(owner) // (1 << _ID_BITS)).replace_strict(self._process_numbers, default=0, return_dtype=pl.Int64())
        known = pl.col("correlationId").is_between(1, (1 << _CORRELATION_BITS) - 1)
        return pl.when(known).then(number.fill_null(0) * (1 << _CORRELATION_BITS) + pl.col("correlationId"))


def pid_of(owner: str) -> pl.Expr:
    """Process number in a globalPid or globalTid (docs/formats/nsys.md 4)."""
    return (pl.col(owner) // (1 << _ID_BITS)) & _ID_MASK


def tid_of(owner: str) -> pl.Expr:
    return pl.col(owner) & _ID_MASK

# SPDX-License-Identifier: Apache-2.0
"""All tables of one capture, as a mapping: absent tables are empty, never missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import polars as pl

from stepscope.errors import printable
from stepscope.tables.capture_facts import FACT_TABLES, QUALITY
from stepscope.tables.device import DEVICE_TABLES
from stepscope.tables.facts import Facts
from stepscope.tables.host import HOST_TABLES
from stepscope.tables.issues import Issue
from stepscope.tables.memory import MEMORY_TABLES
from stepscope.tables.schema import Table
from stepscope.tables.vendor_figures import VENDOR_TABLES

ALL_TABLES: dict[str, Table] = {
    table.name: table for table in (*HOST_TABLES, *DEVICE_TABLES, *MEMORY_TABLES, *VENDOR_TABLES, *FACT_TABLES)
}


class Tables(Mapping[str, pl.DataFrame]):
    """Immutable set of frames by table name; `tables.ops` and `tables["ops"]` are the same."""

    def __init__(self, frames: Mapping[str, pl.DataFrame] | None = None):
        unknown = set(frames or ()) - set(ALL_TABLES)
        if unknown:
            raise KeyError(f"no such tables: {sorted(unknown)}")
        self._frames = dict(frames or {})

    def __getitem__(self, name: str) -> pl.DataFrame:
        frame = self._frames.get(name)
        return ALL_TABLES[name].empty() if frame is None else frame

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> pl.DataFrame: ...

    else:

        def __getattr__(self, name):
            if name in ALL_TABLES:
                return self[name]
            raise AttributeError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(ALL_TABLES)

    def __len__(self) -> int:
        return len(ALL_TABLES)

    @property
    def facts(self) -> Facts:
        return Facts.of(self["meta"])

    @property
    def device_kind(self) -> str:
        """npu, cuda, rocm, cpu or another accelerator; what has tasks of a device and does not say which is of an NPU."""
        known = self.facts
        on_npu = self["kernels"].height or self["collectives"].height or known.source.startswith("ascend")
        return known.device_kind or ("npu" if on_npu else "cpu")

    def filled(self) -> list[str]:
        """Names of the tables that have rows."""
        return [name for name, frame in self._frames.items() if frame.height]

    def replace(self, **frames: pl.DataFrame) -> Tables:
        """The same set with some tables replaced."""
        return Tables({**self._frames, **frames})

    def with_quality(self, *lost: pl.DataFrame) -> Tables:
        """The same set with rows added to `quality`."""
        return self.replace(quality=pl.concat([self["quality"], *lost])) if lost else self

    def check(self) -> Tables:
        for name, frame in self._frames.items():
            ALL_TABLES[name].check(frame)
        return self


def lost(issue: Issue, source: str, count: int, detail: str = "") -> pl.DataFrame:
    """One row of `quality`, or none when the count is 0."""
    rows = [(printable(source), issue.name, issue.severity, issue.unit, count, printable(detail))] if count else []
    return pl.DataFrame(rows, schema=QUALITY.schema, orient="row")

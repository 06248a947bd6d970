# SPDX-License-Identifier: Apache-2.0
"""All tables of one capture, as a mapping: absent tables are empty, never missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from html import escape
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
            raise AttributeError(absent_table(name, type(self).__name__))

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *ALL_TABLES]

    def _ipython_key_completions_(self) -> list[str]:
        return list(ALL_TABLES)

    def __repr__(self) -> str:
        return f"Tables({', '.join(f'{name}: {self[name].height}' for name in self.filled())})"

    def _repr_html_(self) -> str:
        """The tables that have rows, for a notebook; it takes over the colours of the page, light or dark."""
        rows = "".join(
            f"<tr><td><code>{name}</code></td><td style='text-align:right'>{self[name].height:,}</td>"
            f"<td style='text-align:left'>{escape(ALL_TABLES[name].doc)}</td></tr>"
            for name in ALL_TABLES
            if self[name].height
        )
        head = "<tr><th>table</th><th>rows</th><th style='text-align:left'>one row is</th></tr>"
        return f"<div><table style='color:inherit;background:transparent'><thead>{head}</thead><tbody>{rows}</tbody></table></div>"

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


def absent_table(name: str, owner: str) -> str:
    """What to say about an attribute that is neither a table nor anything else."""
    near = get_close_matches(name, ALL_TABLES, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"tables are {', '.join(ALL_TABLES)}"
    return f"{owner} has no table or attribute {name!r}; {hint}"


def lost(issue: Issue, source: str, count: int, detail: str = "") -> pl.DataFrame:
    """One row of `quality`, or none when the count is 0."""
    rows = [(printable(source), issue.name, issue.severity, issue.unit, count, printable(detail))] if count else []
    return pl.DataFrame(rows, schema=QUALITY.schema, orient="row")

# SPDX-License-Identifier: Apache-2.0
"""How a csv file is declared: for each column its title, its unit and what stands for a missing value, to read and write by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import polars as pl

from stepscope.render import csv_file
from stepscope.render.csv_file import NOT_KNOWN, Cells
from stepscope.render.parts import Part

Kind = Literal["text", "shapes", "count", "number", "time"]

NS_PER_US = 1000.0


@dataclass(frozen=True)
class Column:
    """One column of a file.

    Attributes:
        key: name in frames.
        kind: what its cells are. A `time` is in decimal microseconds, in frames in nanoseconds.
        title: name in the files that are written.
        unit: of a number: value in frames = cell * unit.
        msprof: title in msprof's own file, where it is another one.
        others: titles in files of other versions and their units; of several in one file the first counts.
        missing: what is written for a missing value.
        needed: a row without it is not read.
        digits: of a number: at most so many are written after the point; as many as it has by default.
        plain_zero: 0 is written without a point.
    """

    key: str
    kind: Kind
    title: str
    unit: float = 1.0
    msprof: str = ""
    others: Mapping[str, float] = field(default_factory=dict)
    missing: str = ""
    needed: bool = False
    digits: int | None = None
    plain_zero: bool = False

    @property
    def names(self) -> dict[str, float]:
        """All titles that the column may have, best first, and their units."""
        own = (self.title, self.msprof) if self.msprof else (self.title,)
        return {**dict.fromkeys(own, self.unit), **self.others}


def column(
    key: str,
    kind: Kind,
    title: str,
    *older: str,
    unit: float = 1.0,
    msprof: str = "",
    missing: str = "",
    needed: bool = False,
    digits: int | None = None,
    plain_zero: bool = False,
) -> Column:
    """A column that had the same unit under its older titles."""
    others = dict.fromkeys(older, unit)
    return Column(key, kind, title, unit, msprof, others, missing, needed, digits, plain_zero)


DEVICE = column("device", "count", "Device_id", missing=NOT_KNOWN)


def select(columns: Iterable[Column], keys: Iterable[str]) -> tuple[Column, ...]:
    """The columns of these keys, in the order of the file."""
    wanted = set(keys)
    return tuple(item for item in columns if item.key in wanted)


def without(columns: Iterable[Column], *keys: str) -> tuple[Column, ...]:
    return tuple(item for item in columns if item.key not in keys)


def titles(columns: Iterable[Column]) -> dict[str, str]:
    """Title by key."""
    return {item.key: item.title for item in columns}


def in_msprof(columns: Iterable[Column]) -> tuple[Column, ...]:
    """The columns under the titles of msprof's own file."""
    return tuple(replace(item, title=item.msprof or item.title) for item in columns)


def cells(columns: Iterable[Column], rows: pl.DataFrame, **special: Sequence[Part]) -> list[Cells]:
    """The columns of rows as text; `special` has, by key, the parts of cells that look different from others of their kind."""
    return [(item.title, special[item.key]) if item.key in special else _cells(item, rows) for item in columns]


def _cells(item: Column, rows: pl.DataFrame) -> Cells:
    match item.kind:
        case "text":
            return csv_file.text(item.title, item.key, item.missing)
        case "shapes":
            return csv_file.shapes(item.title, item.key, item.missing)
        case "count":
            return csv_file.whole(item.title, item.key, item.missing)
        case "time":
            return csv_file.moment(item.title, rows, item.key)
        case "number":
            values = rows[item.key]
            if item.unit == NS_PER_US:
                return csv_file.duration(item.title, values, item.missing, plain_zero=item.plain_zero)
            values = values if item.unit == 1.0 else values / item.unit
            return csv_file.fraction(item.title, values if item.digits is None else values.round(item.digits), item.missing)

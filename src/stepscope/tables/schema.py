# SPDX-License-Identifier: Apache-2.0
"""How a table is declared and checked: columns with a type, a unit and a sentence each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import polars as pl

TEXT = pl.Categorical()


class SchemaError(TypeError):
    """A frame does not have the shape that its table promises: a fault of ours, not of the data."""


@dataclass(frozen=True)
class Column:
    name: str
    dtype: pl.DataType
    doc: str
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """One row kind. `extra` allows further columns of that type (one per PMU metric, say)."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    sorted_by: tuple[str, ...] = ()
    extra: pl.DataType | None = None

    @cached_property
    def schema(self) -> dict[str, pl.DataType]:
        return {column.name: column.dtype for column in self.columns}

    def empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.schema)

    def check(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame when it is exactly this table; raise SchemaError when it is not."""
        actual = dict(frame.schema)
        missing = [name for name in self.schema if name not in actual]
        wrong = [
            f"{name} is {actual[name]}, not {dtype}"
            for name, dtype in self.schema.items()
            if name in actual and actual[name] != dtype
        ]
        added = [name for name in actual if name not in self.schema and (self.extra is None or actual[name] != self.extra)]
        if missing or wrong or added:
            raise SchemaError(f"table {self.name}: missing {missing}, wrong {wrong}, unexpected {added}")
        if self.sorted_by and frame.height > 1:
            keys = frame.select(self.sorted_by)
            if not keys.equals(keys.sort(self.sorted_by, maintain_order=True)):
                raise SchemaError(f"table {self.name}: rows are not sorted by {self.sorted_by}")
        return frame

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Order and cast the columns, fill absent ones with null, drop unknown ones and sort the rows."""
        names = set(frame.columns)
        chosen = [(pl.col(name) if name in names else pl.lit(None)).cast(dtype).alias(name) for name, dtype in self.schema.items()]
        if self.extra is not None:
            chosen += [pl.col(name).cast(self.extra) for name in frame.columns if name not in self.schema]
        return self.sort(frame.select(chosen)) if frame.width else self.empty()

    def sort(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows in the order of this table; those that have it already are not touched."""
        return frame if self._is_sorted(frame) else frame.sort(self.sorted_by, maintain_order=True)

    def _is_sorted(self, frame: pl.DataFrame) -> bool:
        """Whether the rows are in order; looking is far cheaper than sorting. Where a key is null it is left to the sort."""
        if not self.sorted_by or frame.height < 2:
            return True
        if any(frame[name].null_count() for name in self.sorted_by):
            return False
        in_order = pl.lit(True)
        for key in map(pl.col, reversed(self.sorted_by)):
            in_order = (key < key.shift(-1)) | ((key == key.shift(-1)) & in_order)
        return bool(frame.select(in_order.all()).item())


def span(what: str) -> Iterable[Column]:
    """The two columns of a half-open time range on the host's epoch clock."""
    return (
        Column("start_ns", pl.Int64(), f"Start of the {what} on the host's epoch clock.", "ns"),
        Column("end_ns", pl.Int64(), f"First instant after the {what}.", "ns"),
    )


def thread() -> Iterable[Column]:
    return (
        Column("pid", pl.Int64(), "Operating-system process."),
        Column("tid", pl.Int64(), "Operating-system thread."),
    )

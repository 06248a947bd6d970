# SPDX-License-Identifier: Apache-2.0
"""How a table is declared and checked: columns with a type, a unit and a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

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
    """One kind of row. `extra` allows further columns of that type, such as one per PMU metric."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    sorted_by: tuple[str, ...] = ()
    extra: pl.DataType | None = None

    @cached_property
    def schema(self) -> dict[str, pl.DataType]:
        return {column.name: column.dtype for column in self.columns}

    def empty(self) -> pl.DataFrame:
        return self._empty.clone()

    @cached_property
    def _empty(self) -> pl.DataFrame:
        # Asked for hundreds of times; making one takes half a millisecond.
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
        return self.sort(self.arrange(frame)) if frame.width else self.empty()

    def arrange(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The columns of this table; the rows stay where they are."""
        names = set(frame.columns)
        chosen = [(pl.col(name) if name in names else pl.lit(None)).cast(dtype).alias(name) for name, dtype in self.schema.items()]
        if self.extra is not None:
            chosen += [pl.col(name).cast(self.extra) for name in frame.columns if name not in self.schema]
        return frame if frame.schema == self.schema else frame.select(chosen)

    def sort(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows in the order of this table."""
        return in_order(frame, self.sorted_by)


def in_order(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The rows sorted by the keys; rows already in order, which is cheap to see, are not moved."""
    return frame if not keys or _is_sorted(frame, keys) else frame.sort(keys, maintain_order=True)


def _is_sorted(frame: pl.DataFrame, keys: Sequence[str]) -> bool:
    if any(frame[name].null_count() for name in keys):  # the sort decides where nulls go
        return False
    if frame.height < 2:
        return True
    if all(frame.schema[name].is_integer() for name in keys):
        return _is_rising([frame[name].to_numpy() for name in keys])
    rising = pl.lit(True)
    for key in map(pl.col, reversed(keys)):
        rising = (key < key.shift(-1)) | ((key == key.shift(-1)) & rising)
    return bool(frame.select(rising.all()).item())


def _is_rising(keys: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether rows are in the order of their keys, the first one first."""
    equal: npt.NDArray[np.bool_] | None = None  # in all keys so far
    for key in keys:
        before, after = key[:-1], key[1:]
        falls = before > after if equal is None else equal & (before > after)
        if falls.any():
            return False
        equal = before == after if equal is None else equal & (before == after)
        if not equal.any():
            return True
    return True


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

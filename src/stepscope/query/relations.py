# SPDX-License-Identifier: Apache-2.0
"""What a question can name: all tables of all ranks and the views, each with `id` and `rank`, and a sentence per column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

import polars as pl

from stepscope.errors import CaptureError
from stepscope.query.views.columns import VIEW_TABLES
from stepscope.query.views.view import RankTables
from stepscope.tables import ALL_TABLES, Column, Table
from stepscope.tables.union import REFERENCES, with_keys

_ID = Column("id", pl.Int64(), "Number of the row, from 0; with `rank` it names one row.")
_RANK = Column("rank", pl.Int64(), "Rank that was captured; null when the capture does not say.")
_CAPTURE = Column("capture", pl.Int64(), "Number of the capture; only where several captures have the same rank.")
_TYPES = {pl.Int64(): "integer", pl.Float64(): "number", pl.Boolean(): "true or false"}


class Relations:
    """Tables of some captures, each made when first named, and those views that were computed (one frame per rank)."""

    def __init__(self, ranks: Sequence[RankTables], views: Mapping[str, list[pl.DataFrame]]):
        self.ranks, self.views = ranks, views
        self.numbered = len(ranks) > 1 and max(Counter(rank.rank for rank in ranks).values()) > 1
        self._made: dict[str, pl.LazyFrame] = {}

    def named(self, words: Iterable[str]) -> dict[str, pl.LazyFrame]:
        """The relations among some words."""
        return {name: self._relation(name) for name in sorted(set(words) & {*ALL_TABLES, *self.views})}

    def show(self) -> pl.DataFrame:
        """The answer to SHOW TABLES."""
        rows: list[tuple[str, str, int | None, str]] = [
            (name, "table", sum(rank.tables[name].height for rank in self.ranks), table.doc) for name, table in ALL_TABLES.items()
        ]
        rows += [(name, "view", None, table.doc) for name, table in VIEW_TABLES.items()]
        return pl.DataFrame(rows, schema={"name": pl.String, "kind": pl.String, "rows": pl.Int64, "doc": pl.String}, orient="row")

    def describe(self, name: str) -> pl.DataFrame:
        """The answer to DESCRIBE.

        Raises:
            CaptureError: there is no such relation.
        """
        if name not in names():
            raise CaptureError(unknown_relation(name))
        described = columns(ALL_TABLES.get(name) or VIEW_TABLES[name])
        if self.numbered:
            described.insert(2, _CAPTURE)
        if name in ALL_TABLES and ALL_TABLES[name].extra is not None:
            known = {column.name for column in described}
            schema = self._relation(name).collect_schema()
            described += [Column(key, kind, "As the capture names it.") for key, kind in schema.items() if key not in known]
        rows = [(column.name, _type(column.dtype), column.unit, column.doc) for column in described]
        return pl.DataFrame(rows, schema=["column", "type", "unit", "doc"], orient="row")

    def _relation(self, name: str) -> pl.LazyFrame:
        if name not in self._made:
            tables = [with_keys(name, rank.tables[name]) for rank in self.ranks] if name in ALL_TABLES else []
            frames = self.views.get(name, tables)
            parts = [self._with_rank(frame, number) for number, frame in enumerate(frames)]
            self._made[name] = parts[0] if len(parts) == 1 else pl.concat(parts, how="diagonal")
        return self._made[name]

    def _with_rank(self, frame: pl.DataFrame, number: int) -> pl.LazyFrame:
        """Keys first; categories as text, made only of the columns that a question names."""
        keys = [pl.lit(self.ranks[number].rank, pl.Int64).alias("rank")]
        if self.numbered:
            keys.append(pl.lit(number, pl.Int64).alias("capture"))
        lazy = frame.lazy().with_columns(pl.col(pl.Categorical).cast(pl.String))
        if "id" not in frame.columns:
            keys.insert(0, pl.int_range(pl.len(), dtype=pl.Int64).alias("id"))
            return lazy.select(*keys, pl.all())
        return lazy.select("id", *keys, pl.exclude("id"))


def names() -> list[str]:
    """Names of all relations."""
    return [*ALL_TABLES, *VIEW_TABLES]


def columns(table: Table) -> list[Column]:
    """Columns of a relation in order."""
    own = {column.name: column for column in table.columns}
    references = [
        Column(f"{column}_id", pl.Int64(), f"The same as `{column}`: `id` in `{target}`.")
        for (name, column), target in REFERENCES.items()
        if name == table.name
    ]
    return [own.pop("id", _ID), _RANK, *own.values(), *references]


def unknown_relation(name: str) -> str:
    """What to say about a name that is no relation."""
    near = get_close_matches(name, names(), 3)
    return f"there is no table {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else "") + "; SHOW TABLES lists all"


def _type(kind: pl.DataType) -> str:
    if kind in _TYPES:
        return _TYPES[kind]
    return "integer" if kind.is_integer() else "number" if kind.is_float() else "list" if kind.is_nested() else "text"

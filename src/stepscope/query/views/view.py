# SPDX-License-Identifier: Apache-2.0
"""How a view is declared: its columns, a question that shows its use, and the function that computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from stepscope.tables import Table, Tables

if TYPE_CHECKING:
    from stepscope.verdict.case import Case


@dataclass(frozen=True)
class RankTables:
    """One capture that is asked: its tables, its path, and what is derived from them once for all views."""

    tables: Tables
    path: str = ""

    @cached_property
    def case(self) -> Case:
        from stepscope.verdict.case import Case
        from stepscope.verdict.settings import limits

        return Case(self.tables, limits())

    @property
    def rank(self) -> int | None:
        """Its number in the job; None when unknown."""
        known = self.tables.facts.rank
        return known if known >= 0 else None


@dataclass(frozen=True)
class View:
    """A relation that is computed: `build` gives one frame per rank, with the columns of the table."""

    table: Table
    build: Callable[[Sequence[RankTables]], list[pl.DataFrame]]
    example: str

    def frames(self, ranks: Sequence[RankTables]) -> list[pl.DataFrame]:
        return [self.table.conform(frame) for frame in self.build(ranks)]


def per_rank(build: Callable[[RankTables], pl.DataFrame]) -> Callable[[Sequence[RankTables]], list[pl.DataFrame]]:
    """A view of each rank alone."""
    return lambda ranks: [build(rank) for rank in ranks]


def name_of_rows(tables: Tables, table: pl.Series, row: pl.Series) -> pl.Series:
    """Names of rows of `kernels` (0) and `collectives` (1); null where the row is."""
    rows = pl.DataFrame({"table": table, "row": row})
    named = pl.concat(
        [
            tables[name].select(
                pl.lit(number, table.dtype).alias("table"),
                pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
                pl.col("name").cast(pl.String),
            )
            for number, name in enumerate(("kernels", "collectives"))
        ]
    )
    return rows.join(named, on=["table", "row"], how="left", maintain_order="left")["name"]

# SPDX-License-Identifier: Apache-2.0
"""The string table of a database: every text once per range of ids, without touching rows one by one (docs/formats/enums.md 8)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.arrays import filled, is_null, with_nulls

Change = Callable[[pl.Expr], pl.Expr]


def unchanged(text: pl.Expr) -> pl.Expr:
    return text


class StringIds:
    """Ids of the texts of categorical columns; each range starts at its own number."""

    def __init__(self) -> None:
        self._ids: dict[tuple[int, Change], npt.NDArray[np.int64]] = {}
        self._known: dict[int, dict[str, int]] = {}

    def of(self, column: pl.Series, first: int, *, missing: str | None = None, change: Change = unchanged) -> pl.Series:
        """Ids of a column in the range that starts at `first`; null where the text is null and `missing` is not given.

        Args:
            column: categorical.
            first: smallest id of the range.
            missing: text written for null.
            change: expression on strings that gives what is stored; the same function must be passed each time.
        """
        codes = column.to_physical()
        nulls = is_null(codes) if codes.null_count() else None
        rows = filled(codes)
        ids = self._numbered(column, rows, nulls, first, change)
        numbers = ids[rows] if ids.size else np.zeros(len(column), dtype=np.int64)
        if nulls is None:
            return pl.Series(column.name, numbers)
        if missing is None:
            return with_nulls(pl.Series(column.name, numbers), nulls)
        return pl.Series(column.name, np.where(nulls, self.id(missing, first), numbers))

    def id(self, text: str, first: int) -> int:
        known = self._known.setdefault(first, {})
        return known.setdefault(text, first + len(known))

    def table(self) -> pl.DataFrame:
        """Rows of STRING_IDS."""
        texts = [text for known in self._known.values() for text in known]
        numbers = [number for known in self._known.values() for number in known.values()]
        frame = pl.DataFrame({"id": numbers, "value": texts}, schema={"id": pl.Int64, "value": pl.String})
        return frame.sort("id")

    def _numbered(
        self, column: pl.Series, codes: npt.NDArray[np.uint32], nulls: npt.NDArray[np.bool_] | None, first: int, change: Change
    ) -> npt.NDArray[np.int64]:
        """Ids by category code; new categories are added in the order of their first rows."""
        key = (first, change)
        ids = self._ids.get(key, np.zeros(0, dtype=np.int64))
        if codes.size and int(codes.max()) >= ids.size:
            longer = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
            longer[: ids.size] = ids
            ids = longer
        new = ids[codes] < 0 if codes.size else np.zeros(0, dtype=np.bool_)
        rows = np.flatnonzero(new if nulls is None else new & ~nulls)
        if rows.size:
            firsts = np.full(ids.size, -1, dtype=np.int64)
            firsts[codes[rows[::-1]]] = rows[::-1]  # of equal codes the last assignment counts
            places = np.sort(firsts[firsts >= 0])
            texts = column[places].cast(pl.String)
            if change is not unchanged:
                texts = pl.select(change(pl.lit(texts))).to_series()
            ids[codes[places]] = [self.id(text, first) for text in texts]
        self._ids[key] = ids
        return ids

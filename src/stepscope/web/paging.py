# SPDX-License-Identifier: Apache-2.0
"""One page of a table: filtered, sorted, cut and described; or all of it as csv (docs/http_api.md, pages)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from stepscope.render.formulas import FORMULA, MARK
from stepscope.web.parameters import Query
from stepscope.web.problems import bad_parameter
from stepscope.web.views.slices import matches

MOST_ROWS = 20_000


@dataclass(frozen=True)
class Shown:
    """A column of a table as the page shows it."""

    key: str
    name: str
    tooltip: str = ""
    unit: str = ""
    shown: bool = True
    summed: bool = False

    def described(self, dtype: pl.DataType) -> dict[str, Any]:
        unit = self.unit or _unit(self.name)
        return {
            "key": self.key,
            "name": self.name,
            "unit": unit,
            "type": _type(dtype),
            "tooltip": self.tooltip,
            "shown": self.shown,
        }


@dataclass(frozen=True)
class Late:
    """A column that is computed for the shown rows only; for all rows when the table is sorted or filtered by it."""

    make: Callable[[pl.DataFrame], pl.Series]
    order: str = ""  # column of the frame that has the same order and is there already


@dataclass(frozen=True)
class Listing:
    """All rows of a table in their default order."""

    frame: pl.DataFrame  # holds every shown column that is not in `late`
    columns: tuple[Shown, ...]
    order: tuple[tuple[str, bool], ...] = ()  # key, descending; the order that the rows have
    notes: tuple[str, ...] = ()
    search: str = "name"  # key of the column that `q` looks at
    late: Mapping[str, Late] = field(default_factory=dict)

    @property
    def keys(self) -> set[str]:
        return {column.key for column in self.columns}

    def column(self, key: str) -> pl.Series:
        """One column of all rows."""
        return self.late[key].make(self.frame).alias(key) if key in self.late else self.frame[key]

    def shown(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The shown columns of some rows of the frame."""
        columns = [self.late[column.key].make(rows).alias(column.key) for column in self.columns if column.key in self.late]
        return rows.with_columns(columns).select(column.key for column in self.columns)

    def replace(self, **changes: Any) -> Listing:
        return replace(self, **changes)


def page(listing: Listing, query: Query) -> dict[str, Any]:
    """The answer of a route that shows a table. Only the rows of the page are put together; the others are only looked at."""
    frame = listing.frame
    mask = _passing(listing, query)
    order, shown_order = _order(listing, mask, query)
    offset, limit = query.number("offset", 0), query.number("limit", 100, most=MOST_ROWS)
    filtered_count = frame.height if mask is None else int(mask.sum())
    part = listing.shown(frame.slice(offset, limit) if order is None else frame[order.slice(offset, limit)])
    sums = {column.key: listing.column(column.key) for column in listing.columns if column.summed}
    return {
        "columns": [column.described(part.schema[column.key]) for column in listing.columns],
        "rows": [list(row) for row in _plain(part).iter_rows()],
        "total": frame.height,
        "filtered": filtered_count,
        "offset": offset,
        "limit": limit,
        "sort": [list(item) for item in shown_order],
        "totals": {key: _sum(values if mask is None else values.filter(mask)) for key, values in sums.items()},
        "notes": list(listing.notes),
    }


def csv_text(listing: Listing, query: Query) -> str:
    """All rows that pass, with the headings. Text that a spreadsheet would take for a formula is marked as text."""
    order, _ = _order(listing, _passing(listing, query), query)
    rows = _plain(listing.shown(listing.frame if order is None else listing.frame[order]))
    safe = [
        pl.when(pl.col(name).str.contains(FORMULA)).then(MARK + pl.col(name)).otherwise(name).alias(name)
        for name, dtype in rows.schema.items()
        if dtype == pl.String
    ]
    titles = _distinct([column.name for column in listing.columns])
    return rows.with_columns(safe).rename(dict(zip(rows.columns, titles, strict=True))).write_csv()


def _distinct(titles: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    out = []
    for title in titles:
        seen[title] = seen.get(title, 0) + 1
        out.append(title if seen[title] == 1 else f"{title} ({seen[title]})")
    return out


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Categories as text, lists as text, infinities and NaN as null: what JSON and csv can hold."""
    floats = [pl.when(pl.col(name).is_finite()).then(name).alias(name) for name, dtype in frame.schema.items() if dtype.is_float()]
    texts = [pl.col(name).cast(pl.String) for name, dtype in frame.schema.items() if isinstance(dtype, (pl.Categorical, pl.Enum))]
    return frame.with_columns(floats + texts)


def filtered(listing: Listing, query: Query) -> pl.DataFrame:
    """The shown columns of the rows that pass `q` and `filter`."""
    mask = _passing(listing, query)
    return listing.shown(listing.frame if mask is None else listing.frame.filter(mask))


def _passing(listing: Listing, query: Query) -> pl.Series | None:
    """Whether each row passes; None without a filter."""
    conditions: list[pl.Series] = []
    text = query.optional("q")
    keys = listing.keys
    if text is not None and listing.search in keys:
        conditions.append(pl.Series(_matching(listing.column(listing.search), text, "q"), dtype=pl.Boolean))
    for key, wanted in query.json("filter", dict, {}).items():
        if key not in keys:
            raise bad_parameter("filter", f"no column {key}")
        if not isinstance(wanted, dict) or not wanted or set(wanted) - {"min", "max", "in", "text"}:
            raise bad_parameter("filter", f"{key}: an object with min and max, in, or text")
        conditions.append(_condition(listing.column(key), key, wanted))
    if not conditions:
        return None
    mask = conditions[0]
    for one in conditions[1:]:
        mask = mask & one
    return mask


def _condition(column: pl.Series, key: str, wanted: dict[str, Any]) -> pl.Series:
    passing: pl.Series = pl.Series([True]).new_from_index(0, len(column))
    if "min" in wanted or "max" in wanted:
        if not column.dtype.is_numeric():
            raise bad_parameter("filter", f"{key} is not a column of numbers")
        for bound, test in (("min", column.ge), ("max", column.le)):
            limit = wanted.get(bound)
            if limit is not None:
                if not isinstance(limit, (int, float)) or isinstance(limit, bool):
                    raise bad_parameter("filter", f"{key}: {bound} is a number")
                passing &= test(limit).fill_null(False)
    if "in" in wanted:
        values = wanted["in"]
        if (
            not isinstance(values, list)
            or len(values) > 1000
            or not all(isinstance(value, (str, int, float, type(None))) for value in values)
        ):
            raise bad_parameter("filter", f"{key}: in is a list of at most 1,000 values")
        texts = _texts(column)
        passing &= texts.is_in([_value_text(value) for value in values if value is not None]).fill_null(False) | (
            texts.is_null() if None in values else pl.Series([False]).new_from_index(0, len(column))
        )
    if "text" in wanted:
        if not isinstance(wanted["text"], str):
            raise bad_parameter("filter", f"{key}: text is text")
        passing &= pl.Series(_matching(column, wanted["text"], "filter"))
    return passing


def _value_text(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _texts(column: pl.Series) -> pl.Series:
    text: pl.Series = column.cast(pl.String)
    return text


def _matching(column: pl.Series, text: str, parameter: str) -> Any:
    """Substring without regard to case, or `/…/` as a regular expression; each different text is looked at once."""
    pattern = text[1:-1] if len(text) > 2 and text.startswith("/") and text.endswith("/") else f"(?i){re.escape(text)}"
    distinct = column.unique().drop_nulls()
    if len(distinct) == len(column):
        return matches(_texts(column), pattern, parameter)
    hits = distinct.filter(pl.Series(matches(_texts(distinct), pattern, parameter), dtype=pl.Boolean))
    return column.is_in(hits.implode()).fill_null(False).to_numpy()


def _order(listing: Listing, mask: pl.Series | None, query: Query) -> tuple[pl.Series | None, Sequence[tuple[str, bool]]]:
    """Positions of the rows that pass, in the requested order; None for all rows in their own order."""
    positions = None if mask is None else mask.arg_true()
    keys = query.texts("sort")
    if not keys:
        return positions, listing.order
    unknown = [key for key in keys if key not in listing.keys]
    if unknown:
        raise bad_parameter("sort", f"no column {unknown[0]}")
    if len(set(keys)) < len(keys):
        raise bad_parameter("sort", "a column may be given once")
    flags = query.texts("desc")
    if any(flag not in ("0", "1") for flag in flags) or len(flags) > len(keys):
        raise bad_parameter("desc", "0 or 1 for each column")
    descending = [flag == "1" for flag in flags] + [False] * (len(keys) - len(flags))
    columns = [_sortable(listing, key) for key in keys]
    sorted_by = pl.DataFrame(columns if positions is None else [column.gather(positions) for column in columns])
    texts = [_ranks(sorted_by[key]).alias(key) for key in keys if sorted_by.schema[key] in (pl.Categorical, pl.String)]
    by = pl.arg_sort_by(keys, descending=descending, nulls_last=True, maintain_order=True)
    order = sorted_by.with_columns(texts).select(by).to_series()
    return order if positions is None else positions.gather(order), list(zip(keys, descending, strict=True))


def _sortable(listing: Listing, key: str) -> pl.Series:
    order = listing.late[key].order if key in listing.late else ""
    return (listing.frame[order] if order else listing.column(key)).alias(key)


def _ranks(column: pl.Series) -> pl.Series:
    """Whole numbers in the order of the texts; each different text is compared once."""
    distinct = column.unique().drop_nulls()
    if 2 * len(distinct) > len(column):
        return _texts(column)
    ranked = pl.DataFrame({"key": distinct, "rank": _texts(distinct).rank("dense")})
    return pl.DataFrame({"key": column}).join(ranked, on="key", how="left", maintain_order="left")["rank"]


def _sum(column: pl.Series) -> float | int | None:
    total = column.sum()
    return total if isinstance(total, (int, float)) and total == total else None


def _type(dtype: pl.DataType) -> str:
    if dtype == pl.Boolean:
        return "bool"
    if dtype.is_integer():
        return "int"
    return "float" if dtype.is_float() else "text"


def _unit(name: str) -> str:
    match = re.search(r"\(([^()]+)\)$", name)
    return match[1] if match else ""

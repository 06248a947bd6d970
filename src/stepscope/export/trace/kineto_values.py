# SPDX-License-Identifier: Apache-2.0
"""Values as Kineto writes them: lists as JSON, microseconds without digits they do not need."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import polars as pl

from stepscope.render.json_text import escaped

_TENSOR_LIST = "TensorList"


def thousandths(ns: pl.Expr) -> pl.Expr:
    """Nanoseconds as microseconds, exact: 9000 is `9`, 9500 is `9.5`. Whole microseconds stay whole."""
    whole, rest = ns.abs() // 1000, ns.abs() % 1000
    digits = pl.lit(".") + rest.cast(pl.String).str.zfill(3).str.strip_chars_end("0")
    sign = pl.when(ns < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    return sign + whole.cast(pl.String) + pl.when(rest > 0).then(digits).otherwise(pl.lit(""))


def quoted(column: pl.Series) -> pl.Series:
    """Texts as JSON strings."""
    return _each(column, lambda text: f'"{escaped(text)}"')


def list_text(column: pl.Series) -> pl.Series:
    """`2,1,1` becomes `[2, 1, 1]`."""
    return _each(column, lambda text: f"[{text.replace(',', ', ')}]")


def texts_list(column: pl.Series) -> pl.Series:
    """`float;;Scalar` becomes `["float", "", "Scalar"]`."""
    return _each(column, lambda text: orjson.dumps(text.split(";")).decode())


def dims(shapes: pl.Series, dtypes: pl.Series) -> pl.Series:
    """`2,3;;3,4` becomes `[[2, 3], [], [3, 4]]`; inputs that are lists of tensors get a list of their shapes.

    The tables do not say how many tensors a list holds: all of an operator's lists are taken as equally long, as they are
    for the operators that have several.
    """
    pairs = pl.DataFrame({"shapes": shapes.cast(pl.String), "dtypes": dtypes.cast(pl.String)})
    distinct = pairs.drop_nulls("shapes").unique()
    texts = [_dims(shape, types or "") for shape, types in distinct.iter_rows()]
    known = distinct.with_columns(pl.Series("text", texts, dtype=pl.String))
    return pairs.join(known, on=["shapes", "dtypes"], how="left", nulls_equal=True, maintain_order="left")["text"]


def _dims(shapes: str, dtypes: str) -> str:
    parts = [[number for number in map(_number, part.split(",")) if number is not None] for part in shapes.split(";")]
    types = dtypes.split(";") if dtypes else []
    lists = types.count(_TENSOR_LIST)
    spare = len(parts) - (len(types) - lists)
    if not lists or spare < lists or spare % lists:
        return orjson.dumps(parts).decode().replace(",", ", ")
    found: list[object] = []
    rest = iter(parts)
    for kind in types:
        tensors = [next(rest) for _ in range(spare // lists)] if kind == _TENSOR_LIST else None
        # A list of nothing, not one of a tensor without dimensions.
        found.append([] if tensors == [[]] else next(rest) if tensors is None else tensors)
    return orjson.dumps(found).decode().replace(",", ", ")


def _number(text: str) -> int | None:
    return int(text) if text.strip().lstrip("-").isdigit() else None


def _each(column: pl.Series, shape: Callable[[str], str]) -> pl.Series:
    """Each distinct text is shaped once."""
    text = column.cast(pl.String)
    distinct = text.unique().drop_nulls()
    shaped = pl.DataFrame({"old": distinct, "new": pl.Series([shape(one) for one in distinct], dtype=pl.String)})
    found: pl.Series = text.to_frame("old").join(shaped, on="old", how="left", maintain_order="left")["new"]
    return found

# SPDX-License-Identifier: Apache-2.0
"""What a file of sampled data gives, and the few steps all of them share: times, rates, rows of `counters`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part

Column = npt.NDArray[Any]

MB = 1024.0**2
SECOND = 1e9  # nanoseconds
_LONGEST_US = 1 << 52  # 142 years; a larger stamp is damaged, and would not fit as nanoseconds
_EPOCH_NS = 10**17  # a stamp this large counts nanoseconds since 1970, not microseconds since the start


@dataclass(frozen=True)
class SampledRows:
    """Rows by table, and what was lost."""

    rows: Mapping[str, Iterable[pl.DataFrame]] = field(default_factory=dict)
    lost: tuple[pl.DataFrame, ...] = ()


def counters(frames: Iterable[pl.DataFrame], *lost: pl.DataFrame) -> SampledRows:
    return SampledRows({"counters": list(frames)}, lost)


def select_records(rows: Column, mask: Column) -> Column:
    """Some of the records; as bytes, so that numpy does not copy field by field."""
    if not len(rows):
        return rows
    return rows.view(f"V{rows.dtype.itemsize}")[mask].view(rows.dtype)


def columns(rows: Column, *names: str, **renamed: Column) -> pl.DataFrame:
    """Fields of records, and further columns, as a frame; unsigned numbers stay unsigned."""
    return pl.DataFrame({**{name: np.ascontiguousarray(rows[name]) for name in names}, **renamed})


def series(
    rows: pl.DataFrame,
    part: Part,
    source: str,
    name: str | pl.Expr,
    label: str | pl.Expr,
    value: str | pl.Expr,
    instance: str | None = None,
) -> pl.DataFrame:
    """Rows of `counters` from a frame with `time_ns`; samples without a value are left out."""
    return rows.select(
        pl.lit(source).alias("source"),
        (pl.lit(name) if isinstance(name, str) else name).alias("name"),
        (pl.lit(label) if isinstance(label, str) else label).alias("series"),
        (pl.col(instance) if instance else pl.lit(None)).cast(pl.Int64).alias("instance"),
        pl.lit(part.device).cast(pl.Int32).alias("device"),
        pl.col("time_ns").cast(pl.Int64),
        (pl.col(value) if isinstance(value, str) else value).cast(pl.Float64).alias("value"),
    ).drop_nulls("value")


def sampled_ns(part: Part, stamps: Column) -> npt.NDArray[np.int64]:
    """Epoch time of stamps of the device's sampler: microseconds since its start (docs/formats/cann.md 2).

    Records of version 2.0 hold nanoseconds since 1970 instead; the sizes of the numbers tell them apart.
    """
    stamps = stamps.astype(np.uint64)
    since_start = np.minimum(stamps, np.uint64(_LONGEST_US)).astype(np.int64) * 1000 + part.sampled_zero_ns
    since_1970 = np.minimum(stamps, np.uint64(1 << 62)).astype(np.int64)
    return np.asarray(np.where(stamps >= _EPOCH_NS, since_1970, since_start), np.int64)


def since_previous(times: pl.Series) -> pl.DataFrame:
    """Each time once, with the seconds since the one before; null for the first."""
    distinct = pl.DataFrame({"time_ns": times.unique().sort()})
    return distinct.with_columns((pl.col("time_ns").diff() / SECOND).alias("seconds"))


def start_ns(part: Part) -> int:
    """Epoch time at which the recording began; earlier samples do not count. 0 when the folder does not say."""
    begin = integer(str(part.start.get("collectionTimeBegin", "")))
    return begin * 1000 if begin is not None else 0


def integer(text: str) -> int | None:
    """A whole number of at most 18 digits."""
    digits = text[1:] if text[:1] == "-" else text
    return int(text) if digits.isdecimal() and digits.isascii() and len(digits) <= 18 else None


def number(text: str) -> float | None:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def numbers(texts: Iterable[str]) -> list[float] | None:
    """All of the numbers, or None when one of the texts is not a number."""
    parsed = [number(text) for text in texts]
    values = [value for value in parsed if value is not None]
    return values if len(values) == len(parsed) else None

# SPDX-License-Identifier: Apache-2.0
"""How a timeline writes times: the known form for existing viewers, and one that keeps spans nested in Perfetto."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import polars as pl

from stepscope.arrays import filled, is_null, with_nulls
from stepscope.render.number_forms import SHORTEST, SHORTEST_PLAIN_ZERO, THOUSANDTHS
from stepscope.render.parts import Fraction, Numbers, Part

BINARY_PARTS = 4096.0  # to the nanosecond
MOST_WHOLE = 1e15  # larger floats of nanoseconds have no exact text in microseconds


class TimeText(Protocol):
    """How times and durations are written."""

    def at(self, frame: pl.DataFrame, column: str) -> Sequence[Part]:
        """The parts of the value of `ts`."""

    def lasting(self, frame: pl.DataFrame) -> Sequence[Part]:
        """The parts of the value of `dur` of a frame with start_ns, end_ns and perhaps duration_ns."""


class MicrosecondText:
    """`ts` as text with three digits after the point, `dur` as the shortest number of microseconds (docs/formats/outputs.md 3)."""

    def at(self, frame: pl.DataFrame, column: str) -> Sequence[Part]:
        return ('"', Numbers(frame[column], THOUSANDTHS), '"')

    def lasting(self, frame: pl.DataFrame) -> Sequence[Part]:
        return (shown_us(duration(frame)),)


class RelativeNumber:
    """Numbers of microseconds since the first event, exact to the nanosecond.

    The time since the epoch does not fit a double to the nanosecond: Perfetto then shows spans that end after their
    parent as siblings. Readers multiply by 1000 and cut, which turns 1.001 into 1000 ns; the fourth digit makes the
    product larger than the nanosecond it means, and is too small for one that rounds.
    """

    def __init__(self, base_ns: int):
        self.base_ns = base_ns

    def at(self, frame: pl.DataFrame, column: str) -> Sequence[Part]:
        relative = frame[column] - self.base_ns
        return (Numbers(relative, THOUSANDTHS), "2")

    def lasting(self, frame: pl.DataFrame) -> Sequence[Part]:
        return (Numbers(frame["end_ns"] - frame["start_ns"], THOUSANDTHS), "2")


def duration(frame: pl.DataFrame) -> pl.Series:
    """How long each span lasted in ns: as the source gives it, else from its bounds."""
    given = frame["duration_ns"] if "duration_ns" in frame.columns else None
    if given is not None and not given.null_count():
        return given
    whole: pl.Series = (frame["end_ns"] - frame["start_ns"]).alias("duration_ns")
    if given is None or given.null_count() == len(given):
        return whole if given is None else pl.Series(whole, dtype=given.dtype)
    return frame.select(pl.coalesce("duration_ns", whole).alias("duration_ns")).to_series()


def shown_us(values: pl.Series, missing: str = "", *, plain_zero: bool = False) -> Part:
    """Nanoseconds as the shortest number of microseconds; 0 may be plain: without a point."""
    if values.dtype.is_float():
        numbers = filled(values)
        is_whole = (np.rint(numbers) == numbers) & (np.abs(numbers) < MOST_WHOLE) & ~np.signbit(numbers)
        if not is_whole.all():
            return Fraction(microseconds(values), missing, plain_zero)
        values = values.cast(pl.Int64)
    return Numbers(values, SHORTEST_PLAIN_ZERO if plain_zero else SHORTEST, missing)


def microseconds(values: pl.Series) -> pl.Series:
    """Nanoseconds as the nearest float of microseconds; null stays null."""
    numbers = filled(values.cast(pl.Float64))
    # polars multiplies by 0.001 where it divides by a literal 1000, which is off by one in the last digit.
    exact = numbers / 1000.0
    if values.dtype.is_float():
        # Texts have at most five digits below the nanosecond (docs/formats/outputs.md 16); a sixth is left over from a
        # conversion. Times of device counters are whole multiples of a power of two (docs/formats/cann.md 2) and exact as they are.
        binary = numbers * BINARY_PARTS
        short = (np.abs(numbers) < 1e9) & (np.rint(binary) != binary)
        exact[short] = np.rint(numbers[short] * 1e5) / 1e8
    return with_nulls(pl.Series(values.name, exact), is_null(values))

# SPDX-License-Identifier: Apache-2.0
"""From numbers in records to words: the dictionaries a capture carries (docs/formats/cann.md 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import LEVELS
from stepscope.formats.cann.records import text_lines
from stepscope.tables import issues, lost

# Types of level runtime that the vendor's tool knows without the dictionary.
_BUILT_IN = {(5000, 27): "DYNAMIC_ENABLE", (5000, 28): "DYNAMIC_DISABLE"}


@dataclass(frozen=True)
class Words:
    """Texts by number, looked up for whole columns at once."""

    keys: npt.NDArray[np.uint64]  # sorted
    texts: pl.Series  # String, one per key

    @classmethod
    def of(cls, entries: Mapping[int, str]) -> Words:
        keys = np.fromiter(entries.keys(), np.uint64, len(entries))
        order = np.argsort(keys)
        return cls(keys[order], pl.Series(list(entries.values()), dtype=pl.String)[order])

    def text(self, numbers: npt.NDArray[Any], *, else_number: bool = True) -> pl.Series:
        """Text of each number; 0 is null, a number without an entry becomes its own text (or null)."""
        numbers = np.ascontiguousarray(numbers, np.uint64)
        at = np.minimum(np.searchsorted(self.keys, numbers), max(len(self.keys) - 1, 0))
        has_entry = self.keys[at] == numbers if len(self.keys) else np.zeros(len(numbers), bool)
        found = (
            self.texts.gather(pl.Series(np.where(has_entry, at, -1)).replace(-1, None)) if len(self.keys) else _nulls(len(numbers))
        )
        if else_number and not has_entry.all():
            found = found.fill_null(pl.Series(numbers).cast(pl.String))
        return found.set(pl.Series(numbers == 0), None)

    def missing(self, numbers: npt.NDArray[Any]) -> int:
        """How many of the numbers (0 aside) have no entry."""
        unique, counts = np.unique(numbers, return_counts=True)
        return int(counts[(unique != 0) & ~np.isin(unique, self.keys)].sum())


@dataclass(frozen=True)
class Dictionaries:
    """The hash dictionary and the names of record types."""

    hashes: Words
    types: Mapping[tuple[int, int], str]  # (level, type) -> name
    lost: tuple[pl.DataFrame, ...] = ()

    def type_names(self, level: npt.NDArray[Any], kind: npt.NDArray[Any]) -> pl.Series:
        """Name of each (level, type); the number where the capture has no name."""
        keys = level.astype(np.uint64) << np.uint64(32) | kind.astype(np.uint64)
        unique, inverse = np.unique(keys, return_inverse=True)
        names = [self.type_name(int(key >> 32), int(key & 0xFFFFFFFF)) for key in unique.tolist()]
        return pl.Series(names, dtype=pl.String).gather(inverse)

    def type_name(self, level: int, kind: int) -> str:
        return self.types.get((level, kind)) or str(kind)


def read_dictionaries(host: Part | None) -> Dictionaries:
    """Both dictionaries of a capture; empty ones when it has none."""
    if host is None:
        return Dictionaries(Words.of({}), _BUILT_IN)
    hash_lines, hash_lost = text_lines(host.slices("additional.hash_dic"))
    type_lines, type_lost = text_lines(host.slices("additional.type_info_dic"))
    hashes, bad_hashes = _entries(hash_lines, _hash_key)
    types, bad_types = _entries(type_lines, _type_key)
    bad = (
        lost(issues.UNREADABLE_LINE, "hash_dic", bad_hashes),
        lost(issues.UNREADABLE_LINE, "type_info_dic", bad_types),
    )
    return Dictionaries(Words.of(hashes), {**_BUILT_IN, **types}, (*hash_lost, *type_lost, *(row for row in bad if row.height)))


def level_names(levels: npt.NDArray[Any]) -> pl.Series:
    """Words of record levels; the number where it is unknown."""
    unique, inverse = np.unique(levels, return_inverse=True)
    return pl.Series([LEVELS.get(level, str(level)) for level in unique.tolist()], dtype=pl.String).gather(inverse)


def _entries(lines: Iterable[str], key_of: Any) -> tuple[dict[Any, str], int]:
    """Later lines win, as in the vendor's tool."""
    entries: dict[Any, str] = {}
    bad = 0
    for line in lines:
        key, colon, text = line.partition(":")
        number = key_of(key) if colon else None
        if number is None:
            bad += bool(line.strip())
        else:
            entries[number] = text
    return entries, bad


def _hash_key(text: str) -> int | None:
    number = _decimal(text)
    return number if number is not None and number < 1 << 64 else None


def _type_key(text: str) -> tuple[int, int] | None:
    level, underscore, kind = text.partition("_")
    numbers = _decimal(level), _decimal(kind)
    return (numbers[0], numbers[1]) if underscore and numbers[0] is not None and numbers[1] is not None else None


def _decimal(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 20 else None


def _nulls(count: int) -> pl.Series:
    return pl.repeat(None, count, dtype=pl.String, eager=True)

# SPDX-License-Identifier: Apache-2.0
"""Which key of one side is which of the other: exact names, then normalised ones, then place in the model, then nothing.

Every key of both sides ends in exactly one row, so sums over rows are sums over keys whatever the alignment.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.diff.ledger import KEY
from stepscope.diff.names import normal, normal_path

LEVELS: Mapping[str, tuple[str, ...]] = {
    "part": ("part",),
    "module": ("part", "module"),
    "op": ("part", "op"),
    "kernel": ("part", "op", "kernel"),
}
MOST_SEQUENCE = 2_000  # operators of one module that are aligned by edit distance; more are paired by their count

Key = tuple[str, str, str, str]
Operator = tuple[str, str]  # part and name


@dataclass(frozen=True)
class Pair:
    """Keys of both sides that are one row.

    Attributes:
        base, new: the keys on each side, at the level asked for; none where a side lacks it.
        match: exact, normalised, implementation (other kernels of the same operator), replaced (another operator in the same
            place), base (gone) or new.
        base_rows, new_rows: rows of the sides' keys.
    """

    base: tuple[Key, ...]
    new: tuple[Key, ...]
    match: str
    base_rows: tuple[int, ...]
    new_rows: tuple[int, ...]

    @property
    def base_ops(self) -> set[Operator]:
        return _operators(self.base)

    @property
    def new_ops(self) -> set[Operator]:
        return _operators(self.new)

    def name(self, place: int, *, side: str = "new") -> str:
        """One of the names of `KEY`, as the new side has it (or the base, where it is gone); several are joined by ` + `."""
        keys = (self.new or self.base) if side == "new" else (self.base or self.new)
        return " + ".join(dict.fromkeys(key[place] for key in keys))


def align(base: pl.DataFrame, new: pl.DataFrame, by: str, sequences: tuple[pl.DataFrame, pl.DataFrame]) -> list[Pair]:
    """Pair the keys of two sides.

    Args:
        base, new: columns of `KEY`; each row is a key of that side.
        by: one of `LEVELS`.
        sequences: part, module and op of one step of each side in the order of issue.
    """
    columns = LEVELS[by]
    left, right = (_groups(side, columns) for side in (base, new))
    pairs = _take("exact", left, right, lambda key: key)
    if by != "part":
        pairs += _take("normalised", left, right, _normalised)
    if by == "kernel":
        pairs += _take("implementation", left, right, _operator)
    if by in ("op", "kernel"):
        # An operator of which a key matched is still there; nothing took its place.
        gone = _operators(left) - {name for pair in pairs for name in pair.base_ops}
        added = _operators(right) - {name for pair in pairs for name in pair.new_ops}
        swapped = replaced_operators(gone, added, *sequences)
        news = {new: old for old, new in swapped.items()}
        pairs += _take("replaced", left, right, lambda key: _place(key, swapped), lambda key: _place(key, news))
    gone_pairs = [Pair((key,), (), "base", tuple(rows), ()) for key, rows in left.items()]
    return pairs + gone_pairs + [Pair((), (key,), "new", (), tuple(rows)) for key, rows in right.items()]


def _take(
    match: str,
    left: dict[Key, list[int]],
    right: dict[Key, list[int]],
    label: Callable[[Key], Hashable],
    label_right: Callable[[Key], Hashable] | None = None,
) -> list[Pair]:
    """Join keys of the same label and take them out of both sides; a key whose label is None stays."""
    ours, theirs = _by_label(left, label), _by_label(right, label_right or label)
    pairs = []
    for shared, keys in ours.items():
        others = theirs.get(shared)
        if shared is not None and others:
            rows = [tuple(row for key in names for row in side.pop(key)) for names, side in ((keys, left), (others, right))]
            pairs.append(Pair(tuple(keys), tuple(others), match, rows[0], rows[1]))
    return pairs


def _groups(side: pl.DataFrame, columns: tuple[str, ...]) -> dict[Key, list[int]]:
    """Keys of a side at a level, with the rows that make each."""
    found: dict[Key, list[int]] = defaultdict(list)
    shown = side.select(pl.col(name) if name in columns else pl.lit("").alias(name) for name in KEY)
    for row, names in enumerate(shown.iter_rows()):
        found[names].append(row)
    return dict(found)


def _by_label(side: Iterable[Key], label: Callable[[Key], Hashable]) -> dict[Hashable, list[Key]]:
    found: dict[Hashable, list[Key]] = defaultdict(list)
    for key in side:
        found[label(key)].append(key)
    return found


def _normalised(key: Key) -> Key:
    part, module, op, kernel = key
    return part, normal_path(module), normal(op) if op else "", normal(kernel) if kernel else ""


def _operator(key: Key) -> tuple[str, str]:
    return key[0], normal(key[2]) if key[2] else ""


def _operators(side: Iterable[Key]) -> set[Operator]:
    return {(key[0], key[2]) for key in side if key[2]}


def _place(key: Key, swapped: Mapping[Operator, Operator]) -> Hashable:
    """The pair of operators that a key belongs to, in the same order on both sides."""
    own = key[0], key[2]
    return frozenset((own, swapped[own])) if own in swapped else None


# Operators that took the place of others


def replaced_operators(
    gone: set[Operator], added: set[Operator], before: pl.DataFrame, after: pl.DataFrame
) -> dict[Operator, Operator]:
    """Operators of the first side that others stand for on the second, by place inside their modules: (part, op) to (part, op).

    Args:
        gone, added: (part, op) that the other side lacks.
        before, after: part, module and op of one step in order.
    """
    if not gone or not added:
        return {}
    votes: Counter[tuple[Operator, Operator]] = Counter()
    sides = [_by_module(frame) for frame in (before, after)]
    for module in sides[0].keys() & sides[1].keys():
        one, other = sides[0][module], sides[1][module]
        if gone.isdisjoint(one) or added.isdisjoint(other):
            continue
        if max(len(one), len(other)) > MOST_SEQUENCE:
            votes.update(_by_count(one, other, gone, added))
        else:
            votes.update(pair for pair in edit_pairs(one, other, gone, added) if pair[0][0] == pair[1][0])
    chosen: dict[Operator, Operator] = {}
    for (old, new), _ in sorted(votes.items(), key=lambda item: (-item[1], item[0])):
        if old not in chosen and new not in chosen.values():
            chosen[old] = new
    return chosen


def _by_module(frame: pl.DataFrame) -> dict[str, list[Operator]]:
    """Operators by module in order; a side without modules is one module."""
    found: dict[str, list[Operator]] = defaultdict(list)
    for part, module, op in frame.iter_rows():
        found[normal_path(module)].append((part, op))
    return found


def _by_count(
    one: list[Operator], other: list[Operator], gone: set[Operator], added: set[Operator]
) -> Counter[tuple[Operator, Operator]]:
    """Operators that are called equally often and have no rival."""
    ours, theirs = (Counter(name for name in names if name in wanted) for names, wanted in ((one, gone), (other, added)))
    votes: Counter[tuple[Operator, Operator]] = Counter()
    for old, count in ours.items():
        alike = [new for new, calls in theirs.items() if calls == count and new[0] == old[0]]
        rivals = [name for name, calls in ours.items() if calls == count and name[0] == old[0]]
        if len(alike) == 1 and len(rivals) == 1:
            votes[old, alike[0]] += count
    return votes


def edit_pairs(
    one: Sequence[Operator], other: Sequence[Operator], gone: set[Operator], added: set[Operator]
) -> list[tuple[Operator, Operator]]:
    """Substitutions of a shortest edit (Wagner and Fischer) between two sequences; only what has no namesake is substituted.

    One row of the table at a time is computed with array operations: insertions are a running minimum.
    """
    names = {name: number for number, name in enumerate(dict.fromkeys((*one, *other)))}
    ours, theirs = (np.array([names[name] for name in side], dtype=np.int64) for side in (one, other))
    free = [np.array([name in wanted for name in side], dtype=np.bool_) for side, wanted in ((one, gone), (other, added))]
    along = np.arange(theirs.size + 1)
    table = np.empty((ours.size + 1, theirs.size + 1), dtype=np.int32)
    table[0] = along
    for row in range(ours.size):
        # A substitution of names that both sides have costs as much as leaving one out and putting the other in.
        price = np.where(theirs == ours[row], 0, np.where(free[0][row] & free[1], 1, 2))
        best = np.empty_like(along)
        best[0] = row + 1
        best[1:] = np.minimum(table[row, :-1] + price, table[row, 1:] + 1)
        table[row + 1] = np.minimum.accumulate(best - along) + along
    return _substitutions(table, ours, theirs, free, one, other)


def _substitutions(
    table: np.ndarray[tuple[int, int], np.dtype[np.int32]],
    ours: np.ndarray[tuple[int], np.dtype[np.int64]],
    theirs: np.ndarray[tuple[int], np.dtype[np.int64]],
    free: list[np.ndarray[tuple[int], np.dtype[np.bool_]]],
    one: Sequence[Operator],
    other: Sequence[Operator],
) -> list[tuple[Operator, Operator]]:
    found = []
    row, column = ours.size, theirs.size
    while row and column:
        here = table[row, column]
        same = ours[row - 1] == theirs[column - 1]
        if same and here == table[row - 1, column - 1]:
            row, column = row - 1, column - 1
        elif free[0][row - 1] and free[1][column - 1] and here == table[row - 1, column - 1] + 1:
            found.append((one[row - 1], other[column - 1]))
            row, column = row - 1, column - 1
        elif here == table[row - 1, column] + 1:
            row -= 1
        else:
            column -= 1
    return found

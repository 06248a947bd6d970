# SPDX-License-Identifier: Apache-2.0
"""Which call of the host a record belongs to: the nesting of calls by time, per thread (docs/formats/cann.md 7.1).

A record is inside a call when begin < stamp <= end. The tree is built and searched one depth at a time, each step
for all calls or records at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.cann.host.api_events import ACL, COMMUNICATION, MODEL, NODE, Apis, Ints

_FLAT_LEVELS = (ACL, MODEL, COMMUNICATION)  # calls of these levels do not nest inside their own level
_MAX_DEPTH = 20  # deeper calls are not searched


@dataclass(frozen=True)
class Line:
    """The times of all threads on one line of whole numbers, one thread after the other."""

    threads: npt.NDArray[np.uint32]
    zero: int
    span: int
    edges: npt.NDArray[np.uint64] | None  # all times that occur, where they are too far apart to be used as they are

    @classmethod
    def of(cls, tid: npt.NDArray[Any], begin: npt.NDArray[Any], end: npt.NDArray[Any]) -> Line:
        threads = np.unique(tid)
        zero, last = (int(begin.min()), int(end.max())) if len(begin) else (0, 0)
        if (last - zero + 2) * (len(threads) + 1) < 1 << 62:
            return cls(threads, zero, last - zero + 2, None)
        edges = np.unique(np.concatenate([begin, end]))
        return cls(threads, 0, 2 * len(edges) + 2, edges)

    def at(self, tid: npt.NDArray[Any], stamp: npt.NDArray[Any]) -> Ints:
        """Place of each time on the line; -1 for a thread without calls."""
        thread = np.minimum(np.searchsorted(self.threads, tid), max(len(self.threads) - 1, 0))
        has_calls = self.threads[thread] == tid if len(self.threads) else np.zeros(len(tid), bool)
        return np.where(has_calls, thread * self.span + self._place(stamp), -1)

    def _place(self, stamp: npt.NDArray[Any]) -> Ints:
        if self.edges is None:
            inside = np.clip(stamp, np.uint64(self.zero), np.uint64(self.zero + self.span - 1))
            return np.asarray((inside - np.uint64(self.zero)).astype(np.int64))
        place = np.searchsorted(self.edges, stamp)
        exact = self.edges[np.minimum(place, len(self.edges) - 1)] == stamp
        return np.asarray(2 * place + exact)


@dataclass(frozen=True)
class _Layer:
    """Calls of one depth, by their end."""

    rows: Ints
    end: Ints


@dataclass(frozen=True)
class _Level:
    """Calls of one level, by their begin."""

    rows: Ints
    begin: Ints
    reach: Ints  # latest end so far
    inner: Ints  # numbers (in `rows`) of calls inside another one of the level
    inner_reach: Ints


class HostTree:
    """The nested calls; rows are those of `Apis`, -1 where there is no call."""

    def __init__(self, apis: Apis) -> None:
        rows = _in_tree(apis)
        self._line = Line.of(apis.tid[rows], apis.begin[rows], apis.end[rows])
        begin = self._line.at(apis.tid[rows], apis.begin[rows])
        order = np.argsort(begin, kind="stable")
        rows, begin = rows[order], begin[order]
        end = self._line.at(apis.tid[rows], apis.end[rows])
        kept = _without_overlaps(apis.level[rows], begin, end)
        self._rows, self._begin, self._end = rows[kept], begin[kept], end[kept]
        level = apis.level[self._rows]
        self._parent, self._layers = _nest(self._end)
        self._near = {wanted: self._nearest(level == wanted) for wanted in (MODEL, NODE, COMMUNICATION)}
        self._levels = {wanted: self._level(np.flatnonzero(level == wanted)) for wanted in (MODEL, NODE, COMMUNICATION)}

    def deepest(self, tid: npt.NDArray[Any], stamp: npt.NDArray[Any]) -> Ints:
        """Number in the tree of the innermost call around each record; for `row` and `above`."""
        at = self._line.at(tid, stamp)
        found = np.full(len(at), -1, np.int64)
        active = np.arange(len(at))
        for layer in self._layers:
            place = np.searchsorted(layer.end, at[active])
            active, place = active[place < len(layer.end)], place[place < len(layer.end)]
            call = layer.rows[place]
            # Ends grow among the children of one call: the first that ends late enough is the only one possible.
            inside = (self._begin[call] < at[active]) & (self._parent[call] == found[active])
            active, call = active[inside], call[inside]
            found[active] = call
        return found

    def row(self, number: Ints) -> Ints:
        """Row of `Apis` of a call in the tree."""
        return _pick(self._rows, number)

    def above(self, number: Ints, level: int) -> Ints:
        """Row of the nearest call of a level, the call itself included."""
        return self.row(_pick(self._near[level], number))

    def outermost(self, level: int, tid: npt.NDArray[Any], stamp: npt.NDArray[Any]) -> Ints:
        """Row of the first call of a level around each record."""
        at, calls = self._line.at(tid, stamp), self._levels[level]
        return _pick(self._rows, _pick(calls.rows, _first_around(calls.begin, calls.reach, at)))

    def inner(self, level: int, tid: npt.NDArray[Any], stamp: npt.NDArray[Any]) -> Ints:
        """As `outermost`, but where calls of the level nest, the second one; its begin counts as inside."""
        at, calls = self._line.at(tid, stamp), self._levels[level]
        outer = _first_around(calls.begin, calls.reach, at)
        second = _pick(calls.inner, _first_around(calls.begin[calls.inner], calls.inner_reach, at, inclusive=True))
        return _pick(self._rows, _pick(calls.rows, np.where((outer >= 0) & (second > outer), second, outer)))

    def children(self, level: int) -> tuple[Ints, Ints]:
        """Rows of calls directly inside a call of their own level, and of that call."""
        calls = self._levels[level].rows
        parent = self._parent[calls]
        same = (parent >= 0) & (_pick(self._near[level], parent) == parent)
        return self._rows[calls[same]], self._rows[parent[same]]

    def _nearest(self, wanted: npt.NDArray[np.bool_]) -> Ints:
        near = np.where(wanted, np.arange(len(wanted)), -1)
        for layer in self._layers[1:]:
            rows = layer.rows[~wanted[layer.rows]]
            near[rows] = near[self._parent[rows]]
        return near

    def _level(self, rows: Ints) -> _Level:
        begin, end = self._begin[rows], self._end[rows]
        reach = np.maximum.accumulate(end) if len(end) else end
        is_inner = np.append(False, end[1:] <= reach[:-1]) if len(end) else np.zeros(0, bool)
        inner = np.flatnonzero(is_inner)
        inner_reach = np.maximum.accumulate(end[inner]) if len(inner) else end[inner]
        return _Level(rows, begin, reach, inner, inner_reach)


def _in_tree(apis: Apis) -> Ints:
    node = apis.level == NODE
    flat = np.isin(apis.level, _FLAT_LEVELS) & (apis.begin > 0)  # begin 0: the call began before the recording
    return np.flatnonzero((node | flat) & (apis.begin < apis.end))


def _without_overlaps(level: npt.NDArray[Any], begin: Ints, end: Ints) -> npt.NDArray[np.bool_]:
    """At a flat level a call that begins before the last kept one has ended stays out of the tree."""
    kept = np.ones(len(level), bool)
    for flat in _FLAT_LEVELS:
        rows = np.flatnonzero(level == flat)
        following = np.searchsorted(begin[rows], end[rows], "right")
        if len(rows) and (following[:-1] > np.arange(1, len(rows))).any():
            kept[rows] = False
            kept[rows[_chain(following.tolist())]] = True
    return kept


def _chain(following: list[int]) -> list[int]:
    """Each kept call decides which one is next: the one thing here that must go step by step."""
    chain, here = [], 0
    while here < len(following):
        chain.append(here)
        here = following[here]
    return chain


def _nest(end: Ints) -> tuple[Ints, list[_Layer]]:
    """Parent of each call (the nearest earlier one that ends no earlier) and the calls by depth."""
    parent = np.full(len(end), -1, np.int64)
    layers: list[_Layer] = []
    rank = np.unique(end, return_inverse=True)[1].astype(np.int64)
    rows, owner = np.arange(len(end)), np.zeros(len(end), np.int64)  # owner: number of the call around, in the last layer
    previous = rows
    while len(rows) and len(layers) < _MAX_DEPTH:
        value = owner * (len(end) + 1) + rank[rows]
        top = np.ones(len(rows), bool)
        top[1:] = value[1:] > np.maximum.accumulate(value)[:-1]
        if layers:
            parent[rows[top]] = previous[owner[top]]
        previous, inside = rows[top], ~top
        by_end = np.argsort(end[previous], kind="stable")
        layers.append(_Layer(previous[by_end], end[previous][by_end]))
        owner = (np.cumsum(top) - 1)[inside]
        rows = rows[inside]
    return parent, layers


def _first_around(begin: Ints, reach: Ints, at: Ints, *, inclusive: bool = False) -> Ints:
    """Number of the first call with begin < at <= end, given the latest end so far; -1 when there is none."""
    if not len(begin):
        return np.full(len(at), -1, np.int64)
    place = np.searchsorted(reach, at)
    call = np.minimum(place, len(begin) - 1)
    inside = begin[call] <= at if inclusive else begin[call] < at
    return np.where((place < len(begin)) & inside & (at >= 0), call, -1)


def _pick(values: Ints, number: Ints) -> Ints:
    """values[number], and -1 where the number is -1."""
    if not len(values):
        return np.full(len(number), -1, np.int64)
    return np.where(number >= 0, values[number], -1)

# SPDX-License-Identifier: Apache-2.0
"""Sets of time against sets of whole moments."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analysis.partition.spans import Spans, complement, join, minus, union

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def of(pairs) -> Spans:
    start, end = (np.array([pair[place] for pair in pairs], dtype=np.int64) for place in (0, 1))
    return union(start, end)


def moments(pairs) -> set[int]:
    return {moment for start, end in pairs for moment in range(start, end)}


def covered(spans: Spans) -> set[int]:
    """The moments of a set; fails when it is not sorted and disjoint with gaps between."""
    assert (spans.end > spans.start).all()
    assert (spans.start[1:] > spans.end[:-1]).all()
    return moments(zip(spans.start.tolist(), spans.end.tolist(), strict=True))


@given(SPANS)
def test_union(pairs):
    assert covered(of(pairs)) == moments(pairs)


@given(SPANS, SPANS)
def test_difference_and_join(ours, holes):
    assert covered(minus(of(ours), of(holes))) == moments(ours) - moments(holes)
    assert covered(join(of(ours), of(holes))) == moments(ours) | moments(holes)


@given(SPANS, st.integers(0, 40), st.integers(0, 40))
def test_time_inside_a_window(pairs, first, second):
    start, end = min(first, second), max(first, second)
    inside = {moment for moment in moments(pairs) if start <= moment < end}
    assert of(pairs).within(np.array([start]), np.array([end])).tolist() == [len(inside)]
    assert covered(complement(of(pairs), start, end)) == set(range(start, end)) - inside

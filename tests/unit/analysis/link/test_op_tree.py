"""Nesting of operators: one tree per thread, touching nests, improper ranges follow the stack."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from capture_rows import WORKER, op, ops
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analysis.link.op_tree import child_sums, depths, innermost, levels, parents, subtree_sums
from stepscope.native.codec import codec


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param([(0, 10), (2, 5), (6, 9)], [None, 0, 0], id="siblings"),
        pytest.param([(0, 10), (2, 8), (3, 4)], [None, 0, 1], id="nested"),
        pytest.param([(0, 10), (10, 12)], [None, 0], id="touching-nests"),
        pytest.param([(0, 10), (11, 12)], [None, None], id="after-the-end-is-outside"),
        pytest.param([(0, 10), (0, 4)], [None, 0], id="longer-of-equal-starts-is-outer"),
        pytest.param([(0, 10), (0, 10)], [None, 0], id="equal-ranges-nest-in-order"),
        pytest.param([(0, 10), (5, 15), (12, 13)], [None, 0, 1], id="improper-child-outlives-parent"),
        pytest.param([(0, 10), (5, 15), (6, 7), (16, 17)], [None, 0, 1, None], id="improper-all-closed"),
        pytest.param([], [], id="empty"),
    ],
)
def test_parents(spans, expected):
    assert parents(ops(*[op("x", *span) for span in spans])).to_list() == expected


def test_threads_have_their_own_trees():
    frame = ops(op("a", 0, 100), op("b", 10, 70, WORKER), op("c", 20, 31))
    assert parents(frame).to_list() == [None, None, 0]


def test_same_thread_number_in_another_process_is_another_thread():
    frame = ops(op("a", 0, 100), op("b", 10, 70, pid=8))
    assert parents(frame).to_list() == [None, None]


spans = st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(1, 2)).map(lambda s: (s[0], s[0] + s[1], s[2]))


@given(st.lists(spans, max_size=30))
def test_parents_follow_a_stack_per_thread(found):
    frame = ops(*[op("x", start, end, tid) for start, end, tid in found])
    stacks: dict[int, list[int]] = {}
    expected = []
    for row, (tid, start) in enumerate(frame.select("tid", "start_ns").iter_rows()):
        stack = stacks.setdefault(tid, [])
        while stack and start > frame["end_ns"][stack[-1]]:
            stack.pop()
        expected.append(stack[-1] if stack else None)
        stack.append(row)
    assert parents(frame).to_list() == expected


@pytest.mark.usefixtures("kernels")
@given(st.lists(spans, max_size=30), st.booleans())
def test_the_kernel_finds_the_same_parents(found, in_order):
    frame = ops(*[op("x", start, end, tid) for start, end, tid in found])
    frame = frame if in_order else frame.reverse()
    answers = []
    for switch in ("", "0"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("STEPSCOPE_KERNELS", switch)
            assert (codec() is None) == (switch == "0")
            answers.append(parents(frame).to_list())
    assert answers[0] == answers[1]


PARENT = pl.Series([None, 0, 1, 0, None, 4], dtype=pl.Int64)


def test_depths_and_levels():
    assert depths(PARENT).tolist() == [0, 1, 2, 1, 0, 1]
    assert [rows.tolist() for rows in levels(PARENT)] == [[0, 4], [1, 3, 5], [2]]


def test_depth_of_a_long_chain():
    assert depths(pl.Series([None, *range(999)], dtype=pl.Int64)).tolist() == list(range(1000))


def test_sums_of_subtrees_and_of_children():
    value = np.array([1, 10, 100, 1000, 5, 50])
    assert subtree_sums(PARENT, value)[0].tolist() == [1111, 110, 100, 1000, 55, 50]
    assert child_sums(PARENT, value).tolist() == [1010, 100, 0, 0, 50, 0]


def test_sums_of_nothing():
    nothing = pl.Series([], dtype=pl.Int64)
    assert subtree_sums(nothing, np.array([], dtype=np.int64))[0].tolist() == []


@pytest.mark.parametrize(
    ("time", "tid", "at_end", "expected"),
    [
        pytest.param(3, 1, True, "inner", id="innermost"),
        pytest.param(6, 1, True, "outer", id="climbs-out-of-what-ended"),
        pytest.param(5, 1, True, "inner", id="end-counts-when-asked"),
        pytest.param(5, 1, False, "outer", id="end-does-not-count"),
        pytest.param(2, 1, False, "inner", id="start-counts"),
        pytest.param(3, 2, True, "other", id="only-its-own-thread"),
        pytest.param(3, 3, True, None, id="unknown-thread"),
        pytest.param(99, 1, True, None, id="after-everything"),
        pytest.param(None, 1, True, None, id="no-time"),
        pytest.param(3, None, True, None, id="no-thread"),
    ],
)
def test_innermost(time, tid, at_end, expected):
    frame = ops(op("outer", 0, 10), op("other", 1, 4, 2), op("inner", 2, 5))
    points = pl.DataFrame({"time_ns": [time], "tid": [tid]}, schema={"time_ns": pl.Int64, "tid": pl.Int64})
    row = innermost(frame, points, at_end=at_end, parent=parents(frame))[0]
    assert (None if row is None else frame["name"][row]) == expected


def test_innermost_without_spans_or_points():
    none = ops()
    points = pl.DataFrame({"time_ns": [1], "tid": [1]})
    assert innermost(none, points).to_list() == [None]
    assert innermost(none, points.clear()).to_list() == []

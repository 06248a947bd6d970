"""Interval algebra and the overlap analysis."""

from __future__ import annotations

import polars as pl
import pytest
from capture_rows import collective, collectives, kernels, task
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analysis.overlap import device_layers, gaps, intersect, layers, merge, subtract
from stepscope.tables import Facts, Tables


def spans(*pairs):
    return pl.DataFrame(pairs, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")


def pairs(frame):
    return list(frame.select("start_ns", "end_ns").iter_rows())


@pytest.mark.parametrize(
    ("given_spans", "expected"),
    [
        pytest.param([(5, 9), (0, 6)], [(0, 9)], id="overlapping"),
        pytest.param([(0, 5), (5, 9)], [(0, 9)], id="touching"),
        pytest.param([(0, 5), (6, 9)], [(0, 5), (6, 9)], id="apart"),
        pytest.param([(0, 9), (2, 3), (4, 12)], [(0, 12)], id="inside-then-beyond"),
        pytest.param([(3, 3), (0, 1)], [(0, 1)], id="empty-span-dropped"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_merge(given_spans, expected):
    assert pairs(merge(spans(*given_spans))) == expected


@pytest.mark.parametrize(
    ("ours", "theirs", "left", "common"),
    [
        pytest.param([(0, 10)], [(2, 5)], [(0, 2), (5, 10)], [(2, 5)], id="hole-inside"),
        pytest.param([(0, 10)], [(10, 12)], [(0, 10)], [], id="touching-is-not-overlap"),
        pytest.param([(0, 10)], [(0, 10)], [], [(0, 10)], id="equal"),
        pytest.param([(0, 4), (3, 10)], [(2, 5), (4, 6)], [(0, 2), (6, 10)], [(2, 6)], id="each-side-overlaps-itself"),
        pytest.param([(0, 5)], [], [(0, 5)], [], id="no-others"),
        pytest.param([], [(0, 5)], [], [], id="nothing-of-ours"),
    ],
)
def test_subtract_and_intersect(ours, theirs, left, common):
    assert pairs(subtract(spans(*ours), spans(*theirs))) == left
    assert pairs(intersect(spans(*ours), spans(*theirs))) == common


def test_groups_never_meet():
    ours = pl.DataFrame({"device": [0, 1, None], "start_ns": [0, 0, 0], "end_ns": [10, 10, 10]})
    theirs = pl.DataFrame({"device": [1, None], "start_ns": [2, 5], "end_ns": [4, 20]})
    left = subtract(ours, theirs, ["device"])
    assert sorted(left.rows(), key=str) == [(0, 0, 10), (1, 0, 2), (1, 4, 10), (None, 0, 5)]


def test_gaps_reach_to_both_ends_of_their_group():
    busy = pl.DataFrame({"device": [0, 0, 0, 1], "start_ns": [2, 3, 8, 0], "end_ns": [6, 4, 9, 5]})
    within = pl.DataFrame({"device": [0, 1, 2], "start_ns": [0, 0, 4], "end_ns": [9, 7, 6]})
    assert gaps(busy, within, ["device"]).rows() == [(0, 0, 2), (0, 6, 8), (1, 5, 7), (2, 4, 6)]


span = st.tuples(st.integers(0, 15), st.integers(0, 6)).map(lambda s: (s[0], s[0] + s[1]))


def moments(frame):
    return {t for start, end in frame for t in range(start, end)}


@given(st.lists(span, max_size=8), st.lists(span, max_size=8))
def test_algebra_is_that_of_sets_of_moments(ours, theirs):
    a, b = moments(ours), moments(theirs)
    assert moments(pairs(merge(spans(*ours)))) == a
    assert moments(pairs(subtract(spans(*ours), spans(*theirs)))) == a - b
    assert moments(pairs(intersect(spans(*ours), spans(*theirs)))) == a & b
    assert moments(pairs(gaps(spans(*ours), spans((0, 25))))) == set(range(25)) - a


def shown(frame, layer):
    return pairs(frame.filter(pl.col("layer") == layer))


DEVICE = (
    kernels(
        task(100, 200),
        task(150, 250, stream=3),
        task(300, 400),
        task(10, 20, kind="memcpy", name="MEMCPY_ASYNC"),
        task(900, 950, kind="event", name="EVENT_RECORD"),
        task(1000, 1001, kind="other", name="PROFILING_DISABLE"),
        task(410, 420, name="hcom_allReduce_AicpuKernel"),
        task(430, 440, name="broadcast_AivKernel"),
    ),
    collectives(collective(220, 320), collective(380, 500)),
)


def test_layers_of_one_device():
    found = layers(*DEVICE)
    assert shown(found, "Computing") == [(100, 250), (300, 400)]
    assert shown(found, "Communication") == [(220, 320), (380, 500)]
    assert shown(found, "Communication(Not Overlapped)") == [(250, 300), (400, 500)]
    assert shown(found, "Free") == [(10, 100), (500, 950)]


def test_free_of_older_files_stays_between_the_work():
    assert shown(layers(*DEVICE, whole_device=False), "Free") == []


def test_host_task_type_decides_how_far_free_reaches():
    tasks = kernels(
        task(100, 200),
        task(300, 310, kind="other", host_task_type="FFTS_PLUS"),
        task(400, 410, kind="other", host_task_type="NOTIFY_WAIT"),
    )
    assert shown(layers(tasks, collectives()), "Free") == [(200, 410)]


def test_devices_apart():
    found = layers(kernels(task(0, 10), task(20, 30), task(5, 25, device=1)), collectives(collective(10, 20, device=1)))
    assert found.filter(pl.col("layer") == "Free").rows() == [(0, "Free", 10, 20)]
    assert found.filter(pl.col("device") == 1).select("layer", "start_ns", "end_ns").rows() == [
        ("Computing", 5, 25),
        ("Communication", 10, 20),
    ]


def test_nothing_ran():
    assert layers(kernels(), collectives()).height == 0


def test_ends_are_rounded_to_the_nearest_nanosecond():
    tasks = kernels(task(0, 10, duration_ns=10.4), task(20, 30, duration_ns=10.5), task(40, 50, duration_ns=99.0))
    assert shown(layers(tasks, collectives()), "Computing") == [(0, 10), (20, 31), (40, 50)]


@pytest.mark.parametrize(("generation", "kept_for"), [("G2", False), ("G3", True)])
def test_layers_that_were_kept_are_taken_where_they_answer_the_question(generation, kept_for):
    kept = layers(*DEVICE).head(1)
    tables = Tables({"kernels": DEVICE[0], "collectives": DEVICE[1], "overlap": kept, "meta": Facts(generation=generation).table()})
    assert device_layers(tables).equals(kept)
    assert device_layers(tables, whole_device=kept_for).equals(kept)
    assert device_layers(tables, whole_device=not kept_for).equals(layers(*DEVICE, whole_device=not kept_for))

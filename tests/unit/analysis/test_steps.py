"""Device ranges of steps and which step a moment belongs to."""

from __future__ import annotations

import polars as pl
import pytest
from capture_rows import MAIN, WORKER, api, api_calls, collective, collectives, kernels, op, ops, queue, queued, steps, tables, task
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analysis.link.attribution import launched
from stepscope.analysis.link.capture import link
from stepscope.analysis.steps import from_ops, ranged, ranged_by_connection, step_of, with_inflated


def ranges(*spans):
    return pl.DataFrame(spans, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")


def times(*moments):
    return pl.Series(moments, dtype=pl.Int64)


@pytest.mark.parametrize(
    ("spans", "closed", "expected"),
    [
        pytest.param([(10, 20), (30, 40)], "both", [None, 0, 0, 0, None, 1, None], id="ends-included"),
        pytest.param([(10, 20), (30, 40)], "left", [None, 0, 0, None, None, 1, None], id="half-open"),
        pytest.param([(10, 40), (12, 20)], "both", [None, 0, 0, 0, 0, 0, None], id="first-match-wins"),
        pytest.param([(20, 40), (10, 30)], "both", [None, 1, 1, 0, 0, 0, None], id="first-in-order-not-in-time"),
        pytest.param([(None, None), (10, 20)], "both", [None, 1, 1, 1, None, None, None], id="step-without-range"),
        pytest.param([], "both", [None] * 7, id="no-steps"),
    ],
)
def test_step_of(spans, closed, expected):
    assert step_of(times(None, 10, 15, 20, 25, 30, 99), ranges(*spans), closed=closed).to_list() == expected


span = st.tuples(st.integers(0, 20), st.integers(0, 8)).map(lambda s: (s[0], s[0] + s[1]))


@given(st.lists(span, max_size=8), st.booleans())
def test_step_of_is_the_first_range_that_holds_the_time(spans, both):
    moments = list(range(-1, 31))
    expected = [next((i for i, (a, b) in enumerate(spans) if a <= t and (t < b or (both and t == b))), None) for t in moments]
    assert step_of(times(*moments), ranges(*spans), closed="both" if both else "left").to_list() == expected


def device_ranges(frame):
    return list(frame.select("device_start_ns", "device_end_ns").iter_rows())


def correlated(start, end, number):
    return task(start, end, correlation_id=number)


def of(*records):
    return launched(kernels(*records), collectives())


def test_range_runs_from_the_first_launch_to_the_last():
    pairs = queue(queued(1, (10, 11), (12, 13)), queued(2, (20, 21), (22, 23)), queued(3, (30, 31), (32, 33)))
    # The middle launch reaches further on both sides, but only the first and the last launch count.
    tasks = of(correlated(100, 110, 1), correlated(90, 900, 2), correlated(300, 310, 3))
    assert device_ranges(ranged(steps((4, 0, 50)), pairs, tasks)) == [(100, 310)]


def test_launches_without_tasks_are_passed_over():
    pairs = queue(queued(1, (10, 11), (12, 13)), queued(2, (20, 21), (22, 23)), queued(3, (30, 31), (32, 33)))
    assert device_ranges(ranged(steps((4, 0, 50)), pairs, of(correlated(200, 210, 2)))) == [(200, 210)]


def test_range_ends_not_before_the_host():
    pairs = queue(queued(1, (10, 11), (12, 13)))
    assert device_ranges(ranged(steps((4, 0, 500)), pairs, of(correlated(100, 110, 1)))) == [(100, 500)]


def test_enqueues_of_every_thread_count():
    pairs = queue(queued(1, (10, 11), (12, 13), MAIN), queued(2, (20, 21), (22, 23), WORKER))
    assert device_ranges(ranged(steps((4, 0, 50)), pairs, of(correlated(100, 110, 1), correlated(200, 210, 2)))) == [(100, 210)]


def test_several_steps_one_of_them_idle_and_one_without_tasks():
    pairs = queue(queued(1, (10, 11), (12, 13)), queued(2, (210, 211), (212, 213)), queued(3, (310, 311), (312, 313)))
    tasks = of(correlated(60, 70, 1), correlated(260, 470, 2))
    found = ranged(steps((4, 0, 50), (5, 100, 150), (6, 200, 250), (7, 300, 350)), pairs, tasks)
    assert device_ranges(found) == [(60, 70), (None, None), (260, 470), (300, 350)]


def test_further_tasks_and_unlaunched_ones_do_not_count():
    pairs = queue(queued(1, (10, 11), (12, 13)))
    tasks = of(correlated(100, 110, 1), task(1, 999, correlation_id=1, extra=True), task(2, 998))
    assert device_ranges(ranged(steps((4, 0, 50)), pairs, tasks)) == [(100, 110)]


def test_without_queue_launch_times_count():
    tasks = of(
        task(100, 110, launch_ns=10), task(90, 900, launch_ns=20), task(300, 310, launch_ns=30), task(400, 410, launch_ns=60)
    )
    assert device_ranges(ranged(steps((4, 0, 50)), queue(), tasks)) == [(100, 310)]


def test_collectives_are_launches_too():
    tasks = launched(kernels(task(100, 110, launch_ns=10)), collectives(collective(200, 900, launch_ns=20)))
    assert device_ranges(ranged(steps((4, 0, 50)), queue(), tasks)) == [(100, 900)]


def test_range_by_connection_takes_all_operator_launches_inside():
    calls = api_calls(api(10, 20, 1), api(20, 30, 2), api(45, 55, 3), api(30, 40, 4, "acl", "aclrtMemcpyAsync"), api(60, 70, 5))
    tasks = kernels(*[task(100 * i, 100 * i + 50, connection_id=6 - i) for i in range(1, 6)])
    # 1 and 2 are inside; 3 ends after the step, 4 does not launch an operator, 5 begins after the step.
    assert device_ranges(ranged_by_connection(steps((4, 0, 50), (5, 200, 250)), calls, tasks)) == [(400, 550), (200, 250)]


def test_steps_by_name_at_any_depth():
    frame = ops(op("epoch", 0, 100), op("ProfilerStep#3", 10, 40), op("ProfilerStep#4", 50, 90), op("ProfilerStep#x", 91, 92))
    assert from_ops(frame)["step"].to_list() == [3, 4]
    linked = link(tables(ops=frame, kernels=kernels(task(200, 210, launch_ns=60, launch_tid=MAIN))))
    assert linked.steps.select("step", "device_start_ns").rows() == [(3, None), (4, 200)]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(0, [], id="none"),
        pytest.param(2, [False, False], id="two-leave-nothing-to-compare-with"),
        pytest.param(4, [True, False, False, True], id="first-and-last"),
    ],
)
def test_inflated(count, expected):
    assert with_inflated(steps(*[(i, i * 10, i * 10 + 5) for i in range(count)]))["inflated"].to_list() == expected

"""From a device task to the operator that launched it."""

from __future__ import annotations

import pytest
from capture_rows import (
    DEQUEUE,
    MAIN,
    WORKER,
    api,
    api_calls,
    collective,
    collectives,
    kernels,
    op,
    ops,
    queue,
    queued,
    tables,
    task,
)

from stepscope.analysis.link.attribution import attributed, launched, with_launches
from stepscope.analysis.link.capture import link
from stepscope.analysis.link.op_tree import parents
from stepscope.analysis.operators import operator_details


def tree(*records):
    frame = ops(*records)
    return frame.with_columns(parent=parents(frame))


def owners(frame, tasks):
    return [None if row is None else frame["name"][row] for row in tasks["op"]]


TWO = tree(op("outer", 0, 100), op("inner", 10, 20))


@pytest.mark.parametrize(
    ("enqueue", "expected"),
    [
        pytest.param(12, "inner", id="innermost"),
        pytest.param(20, "inner", id="enqueue-at-the-end-is-inside"),
        pytest.param(21, "outer", id="after-the-inner-one"),
        pytest.param(101, None, id="outside-of-all"),
    ],
)
def test_queue_leads_to_the_operator_around_the_enqueue(enqueue, expected):
    found = attributed(
        kernels(task(500, 510, launch_ns=305, launch_tid=DEQUEUE)), TWO, queue(queued(4, (enqueue, enqueue + 1), (300, 310)))
    )
    assert owners(TWO, found) == [expected]
    assert found["correlation_id"].to_list() == [4]


@pytest.mark.parametrize(
    ("launch", "number"),
    [
        pytest.param(299, None, id="before-the-dequeue"),
        pytest.param(300, 4, id="at-its-start"),
        pytest.param(310, 4, id="at-its-end"),
        pytest.param(311, None, id="between-two-dequeues"),
        pytest.param(325, 5, id="in-the-next"),
    ],
)
def test_dequeue_holds_both_its_ends(launch, number):
    pairs = queue(queued(4, (12, 13), (300, 310)), queued(5, (14, 15), (320, 330)))
    found = attributed(kernels(task(500, 510, launch_ns=launch, launch_tid=DEQUEUE)), TWO, pairs)
    assert found["correlation_id"].to_list() == [number]


def test_two_dequeue_threads_at_the_same_time():
    frame = tree(op("first", 0, 50), op("second", 0, 50, WORKER))
    pairs = queue(queued(1, (5, 6), (100, 200), MAIN, via=8), queued(2, (7, 8), (110, 190), WORKER, via=9))
    tasks = kernels(task(500, 510, launch_ns=150, launch_tid=8), task(520, 530, launch_ns=150, launch_tid=9))
    assert owners(frame, attributed(tasks, frame, pairs)) == ["first", "second"]


def test_time_alone_decides_when_no_launch_thread_is_a_dequeue_thread():
    tasks = kernels(task(500, 510, launch_ns=305, launch_tid=77777))
    assert owners(TWO, attributed(tasks, TWO, queue(queued(4, (12, 13), (300, 310))))) == ["inner"]


def test_time_alone_decides_when_the_launch_thread_is_unknown():
    tasks = kernels(task(500, 510, launch_ns=305, launch_tid=DEQUEUE), task(520, 530, launch_ns=306, launch_tid=None))
    assert owners(TWO, attributed(tasks, TWO, queue(queued(4, (12, 13), (300, 310))))) == ["inner", "inner"]


def test_launch_past_the_queue_belongs_to_the_operator_around_it():
    tasks = kernels(task(500, 510, launch_ns=305, launch_tid=DEQUEUE), task(520, 530, launch_ns=50, launch_tid=MAIN))
    found = attributed(tasks, TWO, queue(queued(4, (12, 13), (300, 310))))
    assert owners(TWO, found) == ["inner", "outer"]
    assert found["correlation_id"].to_list() == [4, None]


@pytest.mark.parametrize(
    ("launch", "tid", "expected"),
    [
        pytest.param(15, MAIN, "inner", id="innermost"),
        pytest.param(20, MAIN, "outer", id="end-is-outside"),
        pytest.param(15, WORKER, None, id="only-the-launching-thread"),
        pytest.param(None, MAIN, None, id="no-launch"),
    ],
)
def test_without_queue(launch, tid, expected):
    found = attributed(kernels(task(500, 510, launch_ns=launch, launch_tid=tid)), TWO, queue())
    assert owners(TWO, found) == [expected]


def test_further_tasks_of_a_launch_have_no_operator():
    tasks = kernels(task(500, 510, launch_ns=15, launch_tid=MAIN), task(520, 530, launch_ns=15, launch_tid=MAIN, extra=True))
    assert owners(TWO, attributed(tasks, TWO, queue())) == ["inner", None]


def test_kineto_task_names_its_operator():
    frame = tree(op("aten::mm", 0, 10, external_id=41), op("aten::add", 20, 30, external_id=42))
    tasks = kernels(
        task(500, 510, external_id=42, launch_ns=5, launch_tid=MAIN),
        task(520, 530, external_id=99, launch_ns=5, launch_tid=MAIN),
    )
    assert owners(frame, attributed(tasks, frame, queue())) == ["aten::add", "aten::mm"]


def test_operator_launch_is_preferred_to_other_calls_of_its_connection():
    calls = api_calls(
        api(10, 40, 5, "acl", "aclnnAdd", 3), api(12, 30, 5), api(15, 20, 5, "runtime", "KernelLaunch"), api(50, 60, 6, "acl")
    )
    tasks = kernels(task(500, 510, connection_id=5), task(520, 530, connection_id=6), task(540, 550, connection_id=7))
    found = with_launches(tasks, calls)
    assert found["launch_ns"].to_list() == [12, 50, None]
    assert found["launch_tid"].to_list() == [DEQUEUE, DEQUEUE, None]


def test_a_source_with_launches_has_them_all():
    tasks = kernels(task(500, 510, connection_id=5, launch_ns=11, launch_tid=3), task(520, 530, connection_id=6, kind="event"))
    found = with_launches(tasks, api_calls(api(12, 30, 5), api(32, 50, 6)))
    assert found.select("launch_ns", "launch_tid").rows() == [(11, 3), (None, None)]


def test_tasks_of_a_collective_count_once():
    linked = link(
        tables(
            ops=ops(op("all_reduce", 0, 100)),
            api_calls=api_calls(api(10, 20, 5, tid=MAIN)),
            kernels=kernels(task(500, 510, connection_id=5, kind="memcpy")),
            collectives=collectives(collective(500, 600, connection_id=5)),
        )
    )
    assert (linked.kernels["op"].to_list(), linked.collectives["op"].to_list()) == ([None], [0])
    assert operator_details(linked)["device_self_ns"].to_list() == [100.0]


def test_collective_that_is_a_kernel_is_counted_as_the_kernel():
    both = launched(kernels(task(500, 510, kind="communication")), collectives(collective(500, 510, kernel=0)))
    assert both["table"].to_list() == ["kernels"]


def test_nothing_to_attribute():
    assert attributed(kernels(), ops(), queue()).height == 0
    assert attributed(kernels(task(1, 2, launch_ns=0, launch_tid=1)), ops(), queue())["op"].to_list() == [None]
    assert with_launches(kernels(), api_calls()).height == 0

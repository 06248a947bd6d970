"""Time of each step on each device."""

from __future__ import annotations

import pytest
from capture_rows import MAIN, api, api_calls, collective, collectives, kernels, op, ops, steps, tables, task

from stepscope.analysis.link.capture import link
from stepscope.analysis.step_time import step_trace_time, step_trace_time_by_task


def launched_task(launch, start, end, **more):
    return task(start, end, launch_ns=launch, launch_tid=MAIN, connection_id=launch, **more)


def launched_collective(launch, start, end, **more):
    return collective(start, end, launch_ns=launch, launch_tid=MAIN, connection_id=launch, **more)


CAPTURE = link(
    tables(
        ops=ops(op("aten::mm", 5, 90)),
        steps=steps((3, 0, 100), (4, 1000, 1100), (5, 2000, 2100)),
        api_calls=api_calls(*[api(t, t + 1, t, tid=MAIN) for t in (10, 20, 30, 1010, 1020)]),
        kernels=kernels(launched_task(10, 200, 300), launched_task(1010, 1200, 1500), launched_task(1020, 1500, 1600, device=1)),
        collectives=collectives(launched_collective(20, 250, 400), launched_collective(30, 500, 700, name="hcom_receive__271_1_1")),
    )
)

COLUMNS = [
    "device", "step", "computing_ns", "not_overlapped_ns", "overlapped_ns", "communication_ns", "free_ns", "stage_ns", "bubble_ns",
    "not_overlapped_except_receive_ns", "preparing_ns",
]  # fmt: skip

STEP_3 = (0, 3, 100, 300, 50, 350, 100, 300, 200, 100, 200)


def test_rows_by_device_and_step():
    found = step_trace_time(CAPTURE)
    assert found.columns == COLUMNS
    # Free of device 0: 400-500 in step 3; 700-1200 starts at 700, after step 3 has ended on the device, so it is in no step.
    assert found.rows() == [
        STEP_3,
        (0, 4, 300, 0, 0, 0, 0, 300, 0, 0, 200),
        (1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, 4, 100, 0, 0, 0, 0, 100, 0, 0, 500),
    ]


def test_rows_by_task():
    found = step_trace_time_by_task(CAPTURE)
    assert found.filter(found["step"] == 3).rows()[0] == STEP_3
    # Without launches a step has the range of the host, as the reference has it.
    assert found.filter(found["step"] == 5).rows()[0] == (0, 5, *[0] * 9)


def test_a_pause_before_the_next_step_is_free_time_in_the_file_but_not_in_the_database():
    """The example in docs/collecting.md."""
    linked = link(
        tables(
            ops=ops(op("aten::mm", 5, 90)),
            steps=steps((3, 0, 1000), (4, 1000, 2000)),
            api_calls=api_calls(*[api(t, t + 1, t, tid=MAIN) for t in (10, 1010)]),
            kernels=kernels(launched_task(10, 200, 300), launched_task(1010, 1200, 1500)),
        )
    )
    values = ["step", "computing_ns", "free_ns", "stage_ns"]
    assert step_trace_time(linked).select(values).row(0) == (3, 100, 900, 1000)
    assert step_trace_time_by_task(linked).select(values).row(0) == (3, 100, 0, 100)


def test_times_are_exact_to_the_nanosecond():
    begin = 1_736_412_474_725_417_508
    linked = link(
        tables(
            steps=steps((1, begin, begin + 50)),
            ops=ops(op("x", begin, begin + 50)),
            kernels=kernels(launched_task(begin + 1, begin + 101, begin + 204)),
        )
    )
    assert step_trace_time(linked).select("stage_ns", "preparing_ns").row(0) == (103, 101)


def test_without_steps_one_row_per_device():
    linked = link(tables(ops=ops(op("x", 5, 90)), kernels=kernels(launched_task(10, 200, 300), task(300, 400, device=1))))
    assert step_trace_time(linked).select("device", "step", "computing_ns", "preparing_ns").rows() == [
        (0, None, 100, 195),
        (1, None, 100, 295),
    ]


def test_without_operators_preparing_is_zero():
    assert step_trace_time(link(tables(kernels=kernels(task(200, 300)))))["preparing_ns"].to_list() == [0]


@pytest.mark.parametrize("rule", [step_trace_time, step_trace_time_by_task])
def test_nothing_ran(rule):
    assert rule(link(tables())).columns == COLUMNS
    assert rule(link(tables(steps=steps((1, 0, 10))))).height == 0

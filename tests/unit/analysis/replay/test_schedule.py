# SPDX-License-Identifier: Apache-2.0
"""Schedules against a plain loop over all events, and on numbers that can be checked by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.analysis.partition import device_model
from stepscope.analysis.replay import Schedule, build_schedule, critical_path
from stepscope.tables import ALL_TABLES, Facts, Tables


def plain_run(schedule: Schedule, host, duration, without_waits) -> tuple[int, list[int]]:
    """One event after the other, as the schedule is defined."""
    now, finish, wait, task = 0, 0, 0, 0
    end, free = [0] * duration.size, {}
    for event, is_wait in enumerate(schedule.is_wait.tolist()):
        now += int(host[event])
        if is_wait:
            target = int(schedule.target[wait])
            if target >= 0 and not without_waits[wait]:
                now = max(now, end[target] + int(schedule.tail[wait]))
            wait += 1
            continue
        start = max(now, free.get(int(schedule.stream[task]), now)) + int(schedule.residual[task])
        if schedule.depends_on[task] >= 0:
            start = max(start, end[int(schedule.depends_on[task])] + int(schedule.dependency_ns[task]))
        end[task] = start + int(duration[task])
        free[int(schedule.stream[task])] = end[task]
        task += 1
    finish = max([now, *end])
    return finish, end


@st.composite
def schedules(draw) -> Schedule:
    kinds = draw(st.lists(st.booleans(), min_size=1, max_size=25).filter(lambda kinds: not all(kinds)))
    tasks, waits = kinds.count(False), kinds.count(True)

    def numbers(count, most=30):
        return np.array(draw(st.lists(st.integers(0, most), min_size=count, max_size=count)), dtype=np.int64)

    before = np.cumsum([not kind for kind in kinds])
    issued = [int(count) for count, kind in zip(before, kinds, strict=True) if kind]
    target = [draw(st.integers(-1, count - 1)) for count in issued]
    depends = [draw(st.integers(-1, task - 1)) if draw(st.booleans()) else -1 for task in range(tasks)]
    return Schedule(
        base_ns=0,
        finish_ns=0,
        tasks=pl.DataFrame({"task": range(tasks)}),
        stream=numbers(tasks, 2),
        is_wait=np.array(kinds),
        host_ns=numbers(len(kinds)),
        layers={},
        duration=numbers(tasks),
        residual=numbers(tasks, 5),
        depends_on=np.array(depends, dtype=np.int64),
        dependency_ns=numbers(tasks, 5),
        waits=pl.DataFrame({"start_ns": range(waits)}),
        target=np.array(target, dtype=np.int64),
        tail=numbers(waits, 5),
    )


@pytest.mark.slow  # half a second and more
@settings(max_examples=400)
@given(schedules(), st.data())
def test_blocks_give_what_a_plain_loop_gives(schedule, data):
    host = schedule.host_ns * data.draw(st.integers(0, 2))
    duration = schedule.duration * data.draw(st.integers(0, 2))
    without = np.array(
        data.draw(st.lists(st.booleans(), min_size=schedule.target.size, max_size=schedule.target.size)), dtype=np.bool_
    )
    finish, end = plain_run(schedule, host, duration, without)
    run = schedule.run(host=host, duration=duration, without_waits=without)
    assert run.finish_ns == finish == schedule.finish(host=host, duration=duration, without_waits=without)
    assert run.end.tolist() == end


@given(schedules())
def test_the_critical_path_tiles_the_time_up_to_the_last_end(schedule):
    path = critical_path(schedule)
    pieces = path.select("start_ns", "end_ns").rows()
    assert all(first[1] == second[0] for first, second in pairwise(pieces))
    run = schedule.run()
    if pieces:
        assert pieces[-1][1] == run.end.max()
        assert pieces[0][0] == 0


def capture(**rows) -> Tables:
    frames = {name: ALL_TABLES[name].conform(pl.DataFrame(given, infer_schema_length=None)) for name, given in rows.items()}
    return Tables({**frames, "meta": Facts(device_kind="npu", rank=0).table()})


def kernel(start, end, issue, stream=1):
    return {
        "device": 0, "stream": stream, "start_ns": start, "end_ns": end, "kind": "compute", "name": "k", "launch_ns": issue,
        "launch_tid": 1,
    }  # fmt: skip


US = 1000


def test_without_a_wait_the_host_runs_ahead():
    # 100 us of host work, a kernel of 500 us, a wait for it, 100 us of host work, a kernel of 500 us.
    made = capture(
        kernels=[kernel(110 * US, 610 * US, 100 * US), kernel(720 * US, 1220 * US, 710 * US)],
        api_calls=[{"tid": 1, "start_ns": 100 * US + 1, "end_ns": 610 * US, "name": "aclrtSynchronizeStream"}],
    )
    schedule = build_schedule(device_model(made))
    assert schedule is not None
    assert schedule.error == 0
    assert schedule.target.tolist() == [0]
    # The second kernel is issued while the first runs: the gap of 110 us between them goes, its latency of 10 us stays.
    assert schedule.saved(without_waits=np.array([True])) == 100 * US
    where = critical_path(schedule).group_by("where").agg(us=(pl.col("end_ns") - pl.col("start_ns")).sum() // US).sort("where")
    assert dict(where.iter_rows())["device"] == 1000


def test_a_dependency_between_streams():
    made = capture(kernels=[kernel(10 * US, 500 * US, 0), kernel(505 * US, 700 * US, 20 * US, stream=2)])
    schedule = build_schedule(device_model(made))
    assert schedule is not None
    assert schedule.depends_on.tolist() == [-1, 0]
    # Without the first, the second starts when it is issued, 20 us after the start, and takes 195.
    assert schedule.finish(duration=np.array([0, 195 * US])) == 215 * US


@pytest.mark.parametrize(
    ("name", "length", "late", "full", "found"),
    [
        pytest.param("cudaMemcpyAsync", 200, 10, False, 1, id="pageable copy"),
        pytest.param("cudaLaunchKernel", 200, 10, True, 1, id="launch into a full queue"),
        pytest.param("cudaMemcpyAsync", 40, 10, False, 0, id="too short"),
        pytest.param("cudaMemcpyAsync", 200, 60, False, 0, id="returned long after a task"),
        pytest.param("cudaMalloc", 200, 10, False, 0, id="an allocation"),
    ],
)
def test_waits_by_behaviour(name, length, late, full, found):
    end = 400 * US
    back = end + late * US
    made = capture(
        kernels=[kernel(10 * US, end, 0), kernel(back + 50 * US, back + 60 * US, back + 40 * US)],
        api_calls=[{"tid": 1, "start_ns": back - length * US, "end_ns": back, "name": name}],
    )
    schedule = build_schedule(device_model(made))
    assert schedule is not None
    assert schedule.waits["full"].to_list() == [full] * found


@pytest.mark.parametrize(
    ("took", "late", "found"),
    [
        pytest.param(400, 50, 1, id="returns soon after its kernel"),
        pytest.param(400, 90, 0, id="works on for too large a part of its time"),
        pytest.param(2500, 190, 1, id="returns soon for a wait this long"),
        pytest.param(2500, 300, 0, id="works on long after its kernel"),
        pytest.param(20_000, 900, 0, id="works on for longer than waking up takes"),
        pytest.param(150, 10, 0, id="too short to tell"),
    ],
)
def test_operators_that_wait_for_their_own_kernel(took, late, found):
    back = took * US
    made = capture(
        kernels=[
            kernel(-40 * US, -30 * US, -50 * US),
            {**kernel(10 * US, back - late * US, 0), "op": 0},
            kernel(back + 50 * US, back + 60 * US, back + 40 * US),
        ],
        ops=[{"tid": 1, "start_ns": -5 * US, "end_ns": back, "name": "aten::_unique2"}],
    )
    schedule = build_schedule(device_model(made))
    assert schedule is not None
    assert schedule.waits.height == found

# SPDX-License-Identifier: Apache-2.0
"""Slack by its definition: a task that takes its slack longer moves nothing, one nanosecond more moves the end by one."""

from __future__ import annotations

import numpy as np
import pytest
from verdict_simulator import Loop

from stepscope.analysis.partition import device_model
from stepscope.analysis.replay import build_schedule, critical_path, slack


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(Loop(seed=1, steps=3), id="device-bound"),
        pytest.param(Loop(seed=2, steps=3, host=300.0), id="host-bound"),
        pytest.param(Loop(seed=3, steps=3, host=60.0, at_layer=lambda machine, layer: machine.wait()), id="waits"),
        pytest.param(Loop(seed=4, steps=3, communication=400.0), id="two-streams"),
        pytest.param(Loop(seed=5, steps=3, communication=400.0, blocking=True), id="dependencies"),
    ],
)
def test_slack_is_what_a_task_may_take_longer(loop):
    schedule = build_schedule(device_model(loop.run().tables()))
    found = slack(schedule)
    assert (found >= 0).all()
    tasks = np.random.default_rng(7).permutation(found.size)[:60]
    for task in tasks.tolist():
        for more, moved in ((int(found[task]), 0), (int(found[task]) + 1, 1)):
            duration = schedule.duration.copy()
            duration[task] += more
            assert schedule.finish(duration=duration) - schedule.base_finish_ns == moved, task


def test_tasks_on_the_critical_path_have_none():
    schedule = build_schedule(device_model(Loop(seed=6, steps=3, communication=300.0).run().tables()))
    found = dict(zip(schedule.tasks["task"].to_list(), slack(schedule).tolist(), strict=True))
    path = critical_path(schedule)
    on_device = path.filter(path["where"] == "device")["task"].to_list()
    assert on_device
    assert {found[task] for task in on_device} == {0}

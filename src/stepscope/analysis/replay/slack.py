# SPDX-License-Identifier: Apache-2.0
"""How much longer each task may take without moving the end."""

from __future__ import annotations

import numpy as np

from stepscope.analysis.partition.spans import Ints
from stepscope.analysis.replay.critical_path import earlier_on_stream
from stepscope.analysis.replay.schedule import Schedule


def slack(schedule: Schedule) -> Ints:
    """Slack of each task of the schedule, ns: its latest end less its end. Tasks of a critical path have none.

    One pass from the last event to the first: what follows an event (the next task of the stream, tasks that depend on it, waits
    for it, the host's next event) has been given its latest time before.
    """
    run = schedule.run()
    count = run.end.size
    if not count:
        return np.zeros(0, dtype=np.int64)
    latest_end = [run.finish_ns] * count
    duration, residual = schedule.duration.tolist(), schedule.residual.tolist()
    before, depends_on = earlier_on_stream(schedule).tolist(), schedule.depends_on.tolist()
    dependency, host = schedule.dependency_ns.tolist(), schedule.host_ns.tolist()
    target, tail = schedule.target.tolist(), schedule.tail.tolist()
    task, wait = count - 1, len(target) - 1
    reached_by = run.finish_ns  # the latest moment at which the host may leave the event in hand
    is_wait = schedule.is_wait.tolist()
    for event in range(len(host) - 1, -1, -1):
        if is_wait[event]:
            # It leaves at the end of its task and no earlier than it came.
            if target[wait] >= 0:
                latest_end[target[wait]] = min(latest_end[target[wait]], reached_by - tail[wait])
            wait -= 1
        else:
            start = latest_end[task] - duration[task]
            reached_by = min(reached_by, start - residual[task])
            if before[task] >= 0:
                latest_end[before[task]] = min(latest_end[before[task]], start - residual[task])
            if depends_on[task] >= 0:
                source = depends_on[task]
                latest_end[source] = min(latest_end[source], start - dependency[task])
            task -= 1
        reached_by -= host[event]
    return np.asarray(np.array(latest_end, dtype=np.int64) - run.end)

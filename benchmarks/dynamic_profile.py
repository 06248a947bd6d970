# SPDX-License-Identifier: Apache-2.0
"""What an idle dynamic_profile costs a job whose steps take 10 ms.

Steps with and without the call alternate in one loop; the difference of the medians of the training thread's CPU time is
the cost of the call in place, with cold caches. The watching thread runs all the time; its cost is read from its own CPU clock.
`python -m benchmarks.dynamic_profile --help`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from stepscope.control import config
from stepscope.dynamic_profile.session import Session

STEP_SECONDS, GOAL = 0.010, 0.001
SETTLING_SECONDS = 3.0  # once per job: files are created and the speed is measured


def idle(seconds: float, folder: Path) -> tuple[float, float]:
    """CPU seconds per step: of the training thread for the call, and of the watching thread."""
    session = Session(folder)
    assert session.monitor is not None
    assert session.monitor.thread.ident is not None
    watching = time.pthread_getcpuclockid(session.monitor.thread.ident)
    _steps(session.step, SETTLING_SECONDS)
    before = time.clock_gettime(watching)
    with_call, without = _steps(session.step, seconds)
    watched = (time.clock_gettime(watching) - before) / (len(with_call) + len(without))
    session.end()
    return statistics.median(with_call) - statistics.median(without), watched


def _steps(step: Callable[[], None], seconds: float) -> tuple[list[float], list[float]]:
    """CPU seconds of this thread at the end of steps with the call and without it."""
    with_call: list[float] = []
    without: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for times, call in ((with_call, step), (without, _nothing)):
            time.sleep(STEP_SECONDS)
            before = time.thread_time()
            call()
            times.append(time.thread_time() - before)
    return with_call, without


def _nothing() -> None:
    """Stands in for step()."""


def call_seconds(folder: Path, calls: int = 100_000) -> dict[str, float]:
    """CPU seconds of one call of step(): without a request, and while a request waits for a later step."""
    found = {}
    for name, start_step in (("idle", config.NEVER), ("waiting", 10**9)):
        session = Session(folder / name)
        session.worker.deliver(config.CaptureRequest(start_step=start_step))
        session.step()
        lowest = []
        for _ in range(20):
            before = time.thread_time()
            for _ in range(calls // 20):
                session.step()
            lowest.append((time.thread_time() - before) / (calls // 20))
        found[name] = min(lowest)
        session.end()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0, help="length of the loop; an answer is written every 10 s")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as folder:
        call, watching = idle(args.seconds, Path(folder) / "loop")
        calls = call_seconds(Path(folder))
    share = (call + watching) / STEP_SECONDS
    print(
        f"idle dynamic_profile: {100 * share:.3f} % of a step of {1e3 * STEP_SECONDS:.0f} ms (goal {100 * GOAL:.1f} %): "
        f"the call {1e6 * call:.2f} µs, the watching thread {1e6 * watching:.2f} µs per step"
    )
    print(f"calls in a row: idle {1e9 * calls['idle']:.0f} ns, with a request that waits {1e9 * calls['waiting']:.0f} ns")
    return int(share > GOAL)


if __name__ == "__main__":
    sys.exit(main())

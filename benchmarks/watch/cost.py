# SPDX-License-Identifier: Apache-2.0
"""What `stepscope.watch()` costs a job whose steps take 10 ms, in CPU time.

Groups of steps with and without the watch alternate in one loop: what it replaces in torch is put back for every other group.
The first step of a group is left out, since Python looks up anew what was replaced. The cost of a
pair is the difference of the CPU time that the loop's thread spends in the data loader and the optimizer, where the watch is
called, with caches as cold as 10 ms of sleep leave them; the figure is the median of the pairs, plus the CPU time of the watch's
threads in 10 ms. `python -m benchmarks.watch.cost --help`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEP_SECONDS, GOAL = 0.010, 0.003
SETTLING_STEPS = 300
GROUP = 10


class Switch:
    """Puts what the watch replaced in torch back, and in again."""

    def __init__(self, owners: dict[tuple[Any, str], Any]):
        self._with = {place: vars(place[0])[place[1]] for place in owners}
        self._without = owners

    def set(self, *, watched: bool) -> None:
        for (owner, name), value in (self._with if watched else self._without).items():
            setattr(owner, name, value)


def paired(steps: int, folder: str) -> tuple[list[float], dict[str, float]]:
    """CPU seconds of pairs of steps, with the watch less without it; and of each of its threads in 10 ms."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    import stepscope

    torch.set_num_threads(1)
    places = {(torch.optim.SGD, "step"): None, (_BaseDataLoaderIter, "__next__"): vars(_BaseDataLoaderIter)["__next__"]}
    model = torch.nn.Linear(16, 16)
    before = torch.optim.SGD(model.parameters(), lr=0.01)  # torch wraps the function at the first instance
    places[torch.optim.SGD, "step"] = vars(torch.optim.SGD)["step"]
    del before
    os.chdir(folder)
    stepscope.watch(rings=f"{folder}/rings", out=f"{folder}/out", captures=0)  # no capture: that is another cost
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    switch = Switch(places)
    batches = iter(DataLoader(TensorDataset(torch.randn(3 * (steps + GROUP) + SETTLING_STEPS, 16)), batch_size=1))

    def step() -> float:
        began = time.thread_time()
        (batch,) = next(batches)
        spent = time.thread_time() - began
        model(batch).sum().backward()
        began = time.thread_time()
        optimizer.step()
        spent += time.thread_time() - began
        optimizer.zero_grad()
        time.sleep(STEP_SECONDS)
        return spent

    for _ in range(SETTLING_STEPS):
        step()
    clocks = {each.name: _cpu_clock(each) for each in threading.enumerate() if each.name.startswith("stepscope-")}
    spent = {name: clock() for name, clock in clocks.items()}
    began = time.monotonic()
    differences = []
    for number in range(-(-steps // GROUP)):
        found = {}
        for watched in (number % 2 == 0, number % 2 == 1):
            switch.set(watched=watched)
            found[watched] = [step() for _ in range(GROUP + 1)][1:]
        differences += [one - other for one, other in zip(found[True], found[False], strict=True)]
    switch.set(watched=True)
    seconds = time.monotonic() - began
    return differences, {name: (clock() - spent[name]) / seconds * STEP_SECONDS for name, clock in clocks.items()}


def _cpu_clock(thread: threading.Thread) -> Callable[[], float]:
    assert thread.ident is not None
    number = time.pthread_getcpuclockid(thread.ident)
    return lambda: time.clock_gettime(number)


def hook_seconds(folder: str, calls: int = 100_000) -> float:
    """CPU seconds of one call at the end of a step, with warm caches."""
    from stepscope.watch.settings import Settings
    from stepscope.watch.watcher import Watcher

    watcher = Watcher(Settings(record=0, rings=str(Path(folder) / "hook")))
    watcher.step()
    lowest = []
    for _ in range(20):
        before = time.thread_time()
        for _ in range(calls // 20):
            watcher.step()
        lowest.append((time.thread_time() - before) / (calls // 20))
    watcher.stop()
    return min(lowest)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as folder:
        warm = hook_seconds(folder)
        differences, threads = paired(args.pairs, folder)
        quarter = statistics.quantiles(differences, n=4)
    cost = quarter[1] + sum(threads.values())
    print(f"the call at the end of a step, warm caches: {warm * 1e6:.1f} us")
    print(f"in place: {quarter[1] * 1e6:.1f} us a step (quartiles {quarter[0] * 1e6:.1f} to {quarter[2] * 1e6:.1f})")
    print("threads: " + ", ".join(f"{name} {seconds * 1e6:.1f} us a step" for name, seconds in threads.items()))
    print(f"watch: {cost * 1e6:.1f} us, {100 * cost / STEP_SECONDS:.2f} % of a step of 10 ms; goal {100 * GOAL} %")
    return 0 if cost <= GOAL * STEP_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())

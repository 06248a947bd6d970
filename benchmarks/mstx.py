# SPDX-License-Identifier: Apache-2.0
"""What marks cost: one range, the four stages of mstx_torch_plugin in a step of 10 ms, a call of a module inside another.

Marked and unmarked blocks alternate in one process, so that other load affects both alike; the lowest decile of each
counts. Times are CPU time of the training thread, and of the process where the writing thread counts too.
`python -m benchmarks.mstx --help`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences torch; must be set before the import

import torch

from stepscope import mstx
from stepscope.collect.marks import stages
from stepscope.collect.marks.api import Marks
from stepscope.collect.settings import Settings

STEP_SECONDS = 0.010
Work = Callable[[], None]


@contextmanager
def recording(folder: Path) -> Any:
    marks = Marks(folder, Settings(experimental={"_mstx": True}))
    marks.start()
    try:
        yield
    finally:
        marks.stop()


def compared(work: Work, rounds: int, on: Callable[[], AbstractContextManager[None]], repeats: int) -> dict[str, float]:
    """Seconds of `work` without and with, of the thread (lowest decile) and of the process (mean)."""
    seen: dict[str, list[float]] = {"off": [], "on": []}
    process = {"off": 0.0, "on": 0.0}
    for _ in range(rounds):
        for name, context in (("off", nullcontext), ("on", on)):
            begin = time.process_time()
            with context():
                for _ in range(repeats):
                    start = time.thread_time_ns()
                    work()
                    seen[name].append((time.thread_time_ns() - start) / 1e9)
            process[name] += time.process_time() - begin
    low = {name: statistics.quantiles(values, n=10)[0] for name, values in seen.items()}
    return {**low, "process": (process["on"] - process["off"]) / rounds / repeats}


def ranges(count: int) -> Work:
    start, end = mstx.range_start, mstx.range_end

    def work() -> None:
        for _ in range(count):
            end(start("a range"))

    return work


def empty_loop(count: int) -> Work:
    def work() -> None:
        for _ in range(count):
            pass

    return work


def four_stages() -> Work:
    """A step so small that the marks are what is left: one batch, forward, backward, step, checkpoint."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(1 << 16, 4)), batch_size=1)
    batches = iter(data)

    def work() -> None:
        nonlocal batches
        batch = next(batches, None)
        if batch is None:
            batches = iter(data)
            batch = next(batches)
        model(batch[0]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.save(1, io.BytesIO())

    return work


class Nest(torch.nn.Module):
    def __init__(self, count: int):
        super().__init__()
        self.inner = torch.nn.Identity()
        self.count = count

    def forward(self, x: Any) -> Any:
        inner = self.inner
        for _ in range(self.count):
            inner(x)
        return x


def measure(rounds: int) -> dict[str, float]:
    result: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as name:
        folder = Path(name)

        def on() -> AbstractContextManager[None]:
            (folder / "x.mstx.jsonl").unlink(missing_ok=True)
            return recording(folder)

        count = 2000
        idle = compared(empty_loop(count), rounds, nullcontext, 20)["off"]
        found = compared(ranges(count), rounds, on, 20)
        result["range, off (us)"] = (found["off"] - idle) / count * 1e6
        result["range, on (us)"] = (found["on"] - idle) / count * 1e6
        result["range, on, with the writing thread (us)"] = (found["process"] + found["off"] - idle) / count * 1e6
        stages.enable_forward_and_steps()
        found = compared(four_stages(), rounds, on, 200)
        result["four marks of the plugin (us per step)"] = (found["on"] - found["off"]) * 1e6
        result["of a step of 10 ms (%)"] = (found["on"] - found["off"]) / STEP_SECONDS * 100
        calls = 500
        nest = Nest(calls)
        found = compared(lambda: nest(None), rounds, on, 100)
        result["module call (us)"] = found["off"] / calls * 1e6
        result["module call inside the outermost, extra (us)"] = (found["on"] - found["off"]) / calls * 1e6
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="pairs of blocks (default: 20)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    args = parser.parse_args()
    result = measure(args.rounds)
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        for name, value in result.items():
            print(f"{name:<75} {value:8.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

# SPDX-License-Identifier: Apache-2.0
"""What recording costs a training job: our observer against torch.profiler on the same loop with the same switches.

Profiled and unprofiled blocks alternate in one process, so that other load affects both alike.
The extra time per operator is the difference of lowest deciles of CPU time: of the training thread (what the job
waits for) and of the whole process (with the writer thread). `python -m benchmarks.observer --help`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences torch; must be set before the import

import torch

from stepscope.collect.tiers.observer import Observer, ObserverOptions, load_observer

SWITCHES = {
    "plain": {},
    "shapes": {"record_shapes": True},
    "shapes+memory+stack": {"record_shapes": True, "profile_memory": True, "with_stack": True},
}
Work = Callable[[], None]


def tiny_operators(count: int) -> Work:
    a, b = torch.ones(4), torch.ones(4)

    def work() -> None:
        for _ in range(count):
            torch.add(a, b)

    return work


def train_steps(count: int) -> Work:
    """A transformer so small that overhead dominates."""
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    data = torch.randn(2, 8, 32)

    def work() -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()

    return work


def cpu_seconds(work: Work, runs: int) -> tuple[list[float], float]:
    """CPU time of this thread in each run, and of the process on average. Some short runs are not disturbed by other load."""
    process, times = time.process_time(), []
    for _ in range(runs):
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return times, (time.process_time() - process) / runs


class Ours:
    def __init__(self, observer: Observer, switches: dict[str, bool]):
        self.observer, self.options = observer, ObserverOptions(**switches)
        self.folder = Path(tempfile.mkdtemp(prefix="stepscope-bench-"))

    def __enter__(self) -> None:
        self.observer.prepare(self.folder, self.options)
        self.observer.start()

    def __exit__(self, *_: object) -> None:
        report = self.observer.stop()
        self.operators, self.dropped, self.bytes = report.operators, report.dropped, report.bytes
        shutil.rmtree(self.folder)
        self.folder.mkdir()


class Theirs:
    def __init__(self, switches: dict[str, bool]):
        self.switches = switches

    def __enter__(self) -> None:
        self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **self.switches)
        self.profiler.start()

    def __exit__(self, *_: object) -> None:
        self.profiler.stop()
        del self.profiler


def extra_times(work: Work, recorders: dict[str, Any], blocks: int, runs: int) -> dict[str, tuple[float, float]]:
    """Extra CPU seconds of a run under each recorder: of this thread, of the process (lowest deciles)."""
    work()
    threads: dict[str, list[float]] = {name: [] for name in ("none", *recorders)}
    processes: dict[str, list[float]] = {name: [] for name in ("none", *recorders)}

    def measure(name: str) -> None:
        thread, process = cpu_seconds(work, runs)
        threads[name] += thread
        processes[name].append(process)

    for _ in range(blocks):
        for name, recorder in recorders.items():
            measure("none")
            with recorder:
                measure(name)
    low = {name: (_decile(threads[name]), _decile(processes[name])) for name in threads}
    return {name: (low[name][0] - low["none"][0], low[name][1] - low["none"][1]) for name in recorders}


def _decile(values: list[float]) -> float:
    return statistics.quantiles(values, n=10)[0]


def overhead(observer: Observer, blocks: int) -> None:
    for workload, work, runs, goal in (("tiny operators", tiny_operators(500), 20, 0.5), ("transformer", train_steps(1), 4, 0.8)):
        for name, switches in SWITCHES.items():
            ours = Ours(observer, switches)
            extra = extra_times(work, {"ours": ours, "torch.profiler": Theirs(switches)}, blocks, runs)
            per_op = {who: [1e9 * runs * value / ours.operators for value in pair] for who, pair in extra.items()}
            (mine, mine_all), (other, other_all) = per_op["ours"], per_op["torch.profiler"]
            print(
                f"{workload:15} {name:20} extra ns per operator: {mine:6.0f} (with the writer {mine_all:6.0f}), "
                f"torch.profiler {other:6.0f} ({other_all:6.0f}), ratio {mine / other:.2f} (goal {goal}), dropped {ours.dropped}",
                flush=True,
            )


def own_bytes() -> int:
    """Private memory of this process now."""
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * resource.getpagesize()


def stop_once(who: str, operators: int, switches: dict[str, bool]) -> dict[str, float]:
    """Record many operators in this process; how long stop took and how much memory grew until then."""
    work = tiny_operators(operators)
    tiny_operators(1000)()
    if who == "ours":
        observer = load_observer()
        assert isinstance(observer, Observer), observer
        folder = Path(tempfile.mkdtemp(prefix="stepscope-bench-"))
        before = own_bytes()
        observer.prepare(folder, ObserverOptions(**switches))
        observer.start()
        work()
        grown = own_bytes() - before
        report = observer.stop()
        shutil.rmtree(folder)
        return {"stop": report.seconds, "grown": grown, "dropped": report.dropped, "operators": report.operators}
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **switches)
    before = own_bytes()
    profiler.start()
    work()
    grown = own_bytes() - before
    begin = time.perf_counter()
    profiler.stop()
    return {"stop": time.perf_counter() - begin, "grown": grown}


def stops(operators: int) -> None:
    for name in ("plain", "shapes+memory+stack"):
        results = {}
        for who in ("ours", "theirs"):
            command = [
                sys.executable,
                "-m",
                "benchmarks.observer",
                "--stop-once",
                who,
                "--operators",
                str(operators),
                "--switches",
                name,
            ]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
            results[who] = json.loads(output.splitlines()[-1])
        ours, theirs = results["ours"], results["theirs"]
        print(
            f"{operators} operators, {name}: stop {1e3 * ours['stop']:.1f} ms, torch.profiler {theirs['stop']:.2f} s "
            f"(1/{theirs['stop'] / ours['stop']:.0f}, goal 1/100); memory grew {ours['grown'] / 2**20:.1f} MiB (goal 64), "
            f"torch.profiler {theirs['grown'] / 2**20:.0f} MiB; dropped {ours['dropped']:.0f}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=40, help="profiled blocks per measurement")
    parser.add_argument("--operators", type=int, default=1_000_000, help="for stop time and memory; 0 leaves them out")
    parser.add_argument("--stop-once", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    parser.add_argument("--switches", default="plain", choices=list(SWITCHES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.stop_once:
        print(json.dumps(stop_once(args.stop_once, args.operators, SWITCHES[args.switches])))
        return 0
    observer = load_observer()
    if isinstance(observer, str):
        print(f"the observer is not available: {observer}")
        return 1
    overhead(observer, args.blocks)
    if args.operators:
        stops(args.operators)
    return 0


if __name__ == "__main__":
    sys.exit(main())

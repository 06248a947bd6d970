# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of the verdict on generated tables: partition, all rules, critical path.

    python -m benchmarks.verdict [OPERATORS ...]

One thread issues operators with two runtime calls each and a wait now and then; one stream computes, another communicates.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
import polars as pl

from stepscope.analysis.partition import device_model, exclusive_time, partition
from stepscope.analysis.replay import build_schedule, critical_path
from stepscope.tables import ALL_TABLES, Facts, Tables
from stepscope.verdict import verdict

BASE = 1_700_000_000_000_000_000
PER_STEP = 2_000  # operators
LIMITS = {"partition": 2.0, "verdict": 6.0, "critical path": 1.5}  # CPU s at a million operators
MEMORY = 1.5e9


def tables(count: int) -> Tables:
    """A capture of `count` operators, as many kernels and 1.45 times as many runtime calls."""
    random = np.random.default_rng(1)
    start = BASE + np.cumsum(random.integers(9_000, 14_000, count))
    names = np.array([f"aten::op{number}" for number in range(40)])[random.integers(0, 40, count)]
    ops = pl.DataFrame({"pid": 1, "tid": 1, "start_ns": start, "end_ns": start + 8_000, "name": names, "scope": 0})
    launch = start + 5_000
    length = random.integers(4_000, 16_000, count)
    done = np.cumsum(length)
    begin = done - length + np.maximum.accumulate(launch + 8_000 - (done - length))
    kernels = pl.DataFrame(
        {
            "device": 0,
            "stream": np.where(random.random(count) < 0.02, 9, 1),
            "start_ns": begin,
            "end_ns": begin + length,
            "kind": np.where(random.random(count) < 0.02, "communication", "compute"),
            "name": np.char.add("kernel", random.integers(0, 60, count).astype(str)),
            "launch_ns": launch,
            "launch_tid": 1,
            "op": np.arange(count),
        }
    )
    waits = np.arange(0, count, PER_STEP // 4)
    extra = random.choice(count, int(0.45 * count), replace=False)
    calls = np.concatenate((launch, start[extra] + 1_000, launch[waits] + 3_000))
    names = np.repeat(np.array(["launch", "aclrtGetDevice", "aclrtSynchronizeStream"]), (count, extra.size, waits.size))
    spent = np.repeat(np.array([2_000, 500, 2_500]), (count, extra.size, waits.size))
    api = pl.DataFrame({"pid": 1, "tid": 1, "start_ns": calls, "end_ns": calls + spent, "level": "acl", "name": names})
    first = start[::PER_STEP]
    steps = pl.DataFrame({"step": np.arange(first.size), "start_ns": first, "end_ns": np.append(first[1:], start[-1] + 9_000)})
    frames = {"ops": ops, "kernels": kernels, "api_calls": api, "steps": steps.with_columns(inflated=pl.lit(False))}
    conformed = {name: ALL_TABLES[name].conform(frame) for name, frame in frames.items()}
    return Tables({**conformed, "meta": Facts(source="generated", device_kind="npu", level="Level1", rank=0).table()})


def measure(count: int) -> dict[str, float]:
    made = tables(count)
    began = time.process_time()
    model = device_model(made)
    partition(model)
    exclusive_time(model)
    times = {"partition": time.process_time() - began}
    schedule = build_schedule(device_model(made))
    began = time.process_time()
    if schedule is not None:
        critical_path(schedule)
    times["critical path"] = time.process_time() - began
    began = time.process_time()
    verdict(made)
    times["verdict"] = time.process_time() - began
    return times


def main() -> None:
    for count in [int(word) for word in sys.argv[1:]] or [10_000, 100_000, 1_000_000]:
        for name, spent in measure(count).items():
            limit = f", limit {LIMITS[name]:.1f}" if count == 1_000_000 else ""
            print(f"{count:>9,} operators: {name:<14} {spent:6.2f} CPU s{limit}")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(f"{count:>9,} operators: peak memory of the process {peak / 1e9:.2f} GB, limit {MEMORY / 1e9:.1f}")


if __name__ == "__main__":
    main()

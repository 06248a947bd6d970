# SPDX-License-Identifier: Apache-2.0
"""What an operator on the simulated NPU costs the host, against the same operator on the CPU.

CPU time of the calling thread, lowest of several rounds that alternate between the two. `python -m benchmarks.simnpu`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import torch

from stepscope import simnpu
from stepscope.simnpu.records import Records

CALLS, ROUNDS = 1000, 15


def operators(device: str) -> dict[str, Callable[[], object]]:
    a, b, out = (torch.ones(4, device=device) for _ in range(3))
    return {
        "add": lambda: a + b,
        "add_": lambda: a.add_(b),
        "add out": lambda: torch.add(a, b, out=out),
        "mul number": lambda: a * 2.0,
        "sum": lambda: a.sum(),
        "view": lambda: a.view(2, 2),
        "empty": lambda: torch.empty(4, device=device),
    }


def microseconds(work: Callable[[], object]) -> float:
    torch.npu.synchronize()
    start = time.thread_time_ns()
    for _ in range(CALLS):
        work()
    return (time.thread_time_ns() - start) / CALLS / 1000


def main() -> None:
    simnpu.load()
    torch.set_num_threads(1)
    cpu, npu, records = operators("cpu"), operators("npu"), Records()
    for name in cpu:
        best = dict.fromkeys(("cpu_us", "npu_us", "npu_recorded_us"), float("inf"))
        for _ in range(ROUNDS):
            best["cpu_us"] = min(best["cpu_us"], microseconds(cpu[name]))
            best["npu_us"] = min(best["npu_us"], microseconds(npu[name]))
            records.start()
            best["npu_recorded_us"] = min(best["npu_recorded_us"], microseconds(npu[name]))
            records.stop()
        print(json.dumps({"operator": name, **best, "above_cpu_us": best["npu_us"] - best["cpu_us"]}))


if __name__ == "__main__":
    main()

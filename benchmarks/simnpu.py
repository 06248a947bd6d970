# SPDX-License-Identifier: Apache-2.0
"""What an operator on the simulated NPU costs the host, against the same operator on the CPU.

CPU time of the calling thread, lowest of several rounds. `python -m benchmarks.simnpu`.
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
    best = float("inf")
    for _ in range(ROUNDS):
        torch.npu.synchronize()
        start = time.thread_time_ns()
        for _ in range(CALLS):
            work()
        best = min(best, time.thread_time_ns() - start)
    return best / CALLS / 1000


def main() -> None:
    simnpu.load()
    torch.set_num_threads(1)
    cpu = {name: microseconds(work) for name, work in operators("cpu").items()}
    npu = {name: microseconds(work) for name, work in operators("npu").items()}
    records = Records()
    records.start()
    recorded = {name: microseconds(work) for name, work in operators("npu").items()}
    records.stop()
    for name in cpu:
        print(json.dumps({"operator": name, "cpu_us": cpu[name], "npu_us": npu[name], "npu_recorded_us": recorded[name]}))


if __name__ == "__main__":
    main()

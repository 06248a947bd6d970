# SPDX-License-Identifier: Apache-2.0
"""Record two small steps on the CPU; run by `stepscope doctor` in a process of its own."""

from __future__ import annotations

import sys

STEPS = 2


def main(folder: str) -> None:
    import torch

    from stepscope import profiler

    model = torch.nn.Linear(8, 8)
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        schedule=profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(folder, analyse_flag=False),
    ) as recording:
        for _ in range(1 + STEPS):
            model(torch.randn(4, 8)).sum().backward()
            recording.step()


if __name__ == "__main__":
    main(sys.argv[1])

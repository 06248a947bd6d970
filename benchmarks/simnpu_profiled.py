# SPDX-License-Identifier: Apache-2.0
"""What profiling costs on the simulated NPU: a step of a small transformer at level 1 against the same step unprofiled.

Blocks of steps alternate, profiled and not, in one process; the lowest of each kind counts. `wall` is what a user waits,
`host` is CPU time of the training thread, `process` that of all threads. `python -m benchmarks.simnpu_profiled [--detail]`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from stepscope import profiler, simnpu

BLOCKS, STEPS, SIZE, LAYERS = 6, 6, 128, 2


def training() -> Callable[[], float]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(SIZE, 4, 4 * SIZE, batch_first=True)
    model = nn.Sequential(nn.Embedding(1000, SIZE), nn.TransformerEncoder(layer, LAYERS), nn.Linear(SIZE, 1000)).to("npu")
    optimizer = torch.optim.AdamW(model.parameters())
    words = torch.randint(0, 1000, (8, 64))

    def step() -> float:
        batch = words.to("npu", non_blocking=True)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def block(step: Callable[[], float], folder: Path | None, detail: bool) -> dict[str, float]:
    """Milliseconds per step of one block; recording is on before the first step and off after the last."""
    settings = profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1)
    prof = profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU], experimental_config=settings,
        record_shapes=detail, profile_memory=detail, with_stack=detail,
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder), analyse_flag=False),
    ) if folder else None  # fmt: skip
    if prof:
        prof.start()
    torch.npu.synchronize()
    clocks = {"wall": time.perf_counter, "host": time.thread_time, "process": time.process_time}
    before = {name: clock() for name, clock in clocks.items()}
    for _ in range(STEPS):
        step()
    took = {name: (clock() - before[name]) * 1000 / STEPS for name, clock in clocks.items()}
    begin = time.perf_counter()
    if prof:
        prof.stop()
    return {**took, "stop": (time.perf_counter() - begin) * 1000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--detail", action="store_true", help="also shapes, memory and stacks")
    detail = parser.parse_args().detail
    simnpu.load()
    step = training()
    for _ in range(3):
        step()
    with tempfile.TemporaryDirectory() as folder:
        plain, profiled = [], []
        for number in range(BLOCKS):
            plain.append(block(step, None, detail))
            profiled.append(block(step, Path(folder) / str(number), detail))
    for name in ("wall", "host", "process"):
        base, cost = min(one[name] for one in plain), min(one[name] for one in profiled)
        print(json.dumps({"clock": name, "plain_ms": base, "profiled_ms": cost, "ratio": cost / base}))
    print(json.dumps({"stop_ms": min(one["stop"] for one in profiled)}))


if __name__ == "__main__":
    main()

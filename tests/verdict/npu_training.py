# SPDX-License-Identifier: Apache-2.0
"""Training on the simulated NPU with one known problem, or without: a process that runs a list of cases.

    STEPSCOPE_SIM_KERNEL_TIME=120 python tests/verdict/npu_training.py OUT cases.json

Each case is a JSON object: `name`, `train` (sizes of the model) and `problem` (what `Problem` is given). A capture is written
into OUT/name; a line per case is printed when it is done.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stepscope import simnpu

simnpu.load()
from stepscope import profiler  # noqa: E402

DEVICE = "npu:0"
WARM_UP, STEPS = 3, 8


class Block(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


@dataclass
class Problem:
    """What goes wrong, and how much of it."""

    kind: str = ""
    n: int = 0
    ms: float = 0.0
    every: int = 1

    def batch(self, step: int, batch: torch.Tensor, kept: list[torch.Tensor]) -> torch.Tensor:
        if self.kind == "shapes":
            # Never smaller than without the problem: a short batch leaves the device idle, which is another finding.
            return batch.repeat(2, 1)[: 2 * batch.shape[0] - (step * self.n) % batch.shape[0]]
        if self.kind == "leak":
            kept.append(torch.zeros(self.n << 18, device=DEVICE))
        if self.kind == "outlier" and step % self.every == 0:
            time.sleep(self.ms / 1e3)
        return batch

    def layer(self, y: torch.Tensor) -> torch.Tensor:
        if self.kind == "python":
            time.sleep(self.ms / 1e3)  # a busy loop would take the core that computes for the device
        if self.kind == "alloc":
            torch.npu.empty_cache()  # type: ignore[attr-defined]
            torch.empty(self.n << 20, dtype=torch.uint8, device=DEVICE)
        for _ in range(self.n if self.kind in ("item", "cast", "transpose", "unique", "host_copy") else 0):
            if self.kind == "item":
                y.sum().item()
            elif self.kind == "cast":
                y = y.to(torch.float32).to(torch.float16)
            elif self.kind == "transpose":
                y = y.t().contiguous().t().contiguous()
            elif self.kind == "unique":
                torch.unique(torch.zeros(2000, dtype=torch.int64, device=DEVICE))
            else:
                y = y.cpu().to(DEVICE)
        return y

    def loss(self) -> None:
        if self.kind == "gc":
            junk = [[{"k": [number]} for number in range(10)] for _ in range(self.n // 10)]
            gc.collect()
            del junk

    def end(self, step: int, net: torch.nn.Module, out: Path) -> None:
        if self.kind == "save" and step % self.every == 0:
            torch.save({"model": net.state_dict(), "state": torch.zeros(self.n << 18)}, out / "checkpoint.pt")


def train(out: Path, problem: Problem, *, width: int = 48, layers: int = 4, batch: int = 16, dtype: str = "float16") -> None:
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    net = torch.nn.Sequential(*(Block(width) for _ in range(layers))).to(DEVICE, kind)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    data = [torch.randn(batch, width, dtype=kind).to(DEVICE) for _ in range(4)]
    kept: list[torch.Tensor] = []
    settings = profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1, gc_detect_threshold=0.1)
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=WARM_UP, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(str(out), analyse_flag=False),
        experimental_config=settings,
        record_shapes=True,
        profile_memory=True,
    ) as prof:
        for step in range(WARM_UP + 1 + STEPS):
            with torch.autograd.profiler.record_function("enumerate(DataLoader)#loader.__next__"):
                time.sleep(problem.ms / 1e3 if problem.kind == "data" else 0)
            y = problem.batch(step, data[step % 4], kept)
            for block in net:
                y = problem.layer(block(y))
            loss = y.float().square().mean()
            problem.loss()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            problem.end(step, net, out)
            prof.step()
        torch.npu.synchronize()  # type: ignore[attr-defined]


def main(out: Path, cases: list[dict[str, Any]]) -> None:
    gc.freeze()
    for case in cases:
        folder = out / case["name"]
        folder.mkdir(parents=True)
        began = time.time()
        train(folder, Problem(**case.get("problem", {})), **case.get("train", {}))
        gc.collect()
        print(case["name"], f"{time.time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("STEPSCOPE_SIM_KERNEL_TIME", "120")
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))

"""Train on two NPUs with a data loader that is slow on one of them, then again with the fix; both are recorded.

    stepscope run --nproc 2 examples/slow_loader.py demo-run

On rank 1 every sample is decoded anew, as if its disk were slow. The other rank waits for it in each all-reduce. The fix keeps
what was decoded.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401 - registers the device `npu`
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from stepscope import profiler

BATCH, STEPS, WIDTH = 8, 20, 96
SLOW_SECONDS = 0.004  # for one sample on rank 1


class Samples(Dataset[torch.Tensor]):
    """Pictures that take time to decode; with `keep` each is decoded once."""

    def __init__(self, rank: int, *, keep: bool):
        self.seconds = SLOW_SECONDS if rank == 1 else 0.0
        self.kept: dict[int, torch.Tensor] = {}
        if keep:
            self.kept = {index: self.decode(index) for index in range(BATCH)}

    def __len__(self) -> int:
        return BATCH * (STEPS + 3)

    def __getitem__(self, index: int) -> torch.Tensor:
        sample = self.kept.get(index % BATCH)
        return self.decode(index) if sample is None else sample

    def decode(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((WIDTH,), float(index % 7))


def train(model: nn.Module, device: torch.device, samples: Samples, folder: Path) -> None:
    """A few steps, all but the first two recorded."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=1, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder), analyse_flag=False),
        with_stack=True,
        record_shapes=True,
        experimental_config=profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1),
    ) as recording:
        for batch in DataLoader(samples, batch_size=BATCH):
            optimizer.zero_grad()
            model(batch.to(device)).square().mean().backward()
            optimizer.step()
            recording.step()


def main(folder: Path) -> None:
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("npu", rank)
    torch.npu.set_device(device)
    dist.init_process_group("hccl")
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device))
    train(model, device, Samples(rank, keep=False), folder / "before")
    train(model, device, Samples(rank, keep=True), folder / "after")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

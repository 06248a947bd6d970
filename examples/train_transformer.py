"""Train a small transformer, one process per NPU. It has no profiling code; `stepscope run` adds it:

stepscope run --nproc 2 --profile steps=4:5,level=1,memory,stack,shapes,modules examples/train_transformer.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401 - registers the device `npu`
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, WIDTH, WORDS = 8, 128, 1000


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norms[0](x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.feed_forward(self.norms[1](x))


def main() -> None:
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("npu", rank)
    torch.npu.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group("hccl")
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Embedding(WORDS, WIDTH), Block(WIDTH), Block(WIDTH), nn.Linear(WIDTH, WORDS)).to(device)
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    torch.manual_seed(rank + 1)
    for step in range(STEPS):
        tokens = torch.randint(0, WORDS, (8, 64)).to(device)
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

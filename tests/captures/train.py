# SPDX-License-Identifier: Apache-2.0
"""What the recorded captures show: one small training step after another, profiled in one way per capture."""

from __future__ import annotations

import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any

# The machine that records is nobody's business.
socket.gethostname = lambda: "node"
platform.platform = lambda *_, **__: "Linux-6.1-x86_64"
os.cpu_count = lambda: 4


def small_step(device: str, group: bool = False) -> Any:
    """A step of training: two layers, their gradients, an optimizer; with a group, gradients are averaged over it."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batch = torch.randn(4, 8)

    def step() -> None:
        optimizer.zero_grad()
        model(batch.to(device)).square().mean().backward()
        if group:
            for parameter in model.parameters():
                torch.distributed.all_reduce(parameter.grad)
        optimizer.step()

    for _ in range(2):
        step()
    return step


def profiled(
    folder: Path, step: Any, *, steps: int = 2, level: str = "Level0", device: bool = True, config: Any = (), **switches: Any
) -> None:
    from stepscope import mstx, profiler

    activities = [profiler.ProfilerActivity.CPU, *([profiler.ProfilerActivity.NPU] if device else [])]
    settings = profiler._ExperimentalConfig(
        profiler_level=getattr(profiler.ProfilerLevel, level),
        export_type=[profiler.ExportType.Text, profiler.ExportType.Db],
        **dict(config),
    )
    with profiler.profile(
        activities=activities,
        schedule=profiler.schedule(wait=0, warmup=1, active=steps, repeat=1),
        experimental_config=settings,
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder), worker_name="node", analyse_flag=False),
        **switches,
    ) as prof:
        prof.add_metadata("model", "two layers")
        for _ in range(steps + 1):
            with mstx.mstx_range("one step"):
                step()
            prof.step()


def npu(folder: Path, **asked: Any) -> None:
    import torch

    from stepscope import simnpu

    simnpu.load()
    torch.set_num_threads(1)
    profiled(folder, small_step("npu"), **asked)


def npu_level_none(folder: Path) -> None:
    npu(folder, level="Level_none", config={"mstx": True})


def npu_level0(folder: Path) -> None:
    npu(folder)


def npu_level1(folder: Path) -> None:
    config = {"mstx": True, "l2_cache": True, "op_attr": True, "gc_detect_threshold": 0}
    switches = dict.fromkeys(("record_shapes", "profile_memory", "with_stack", "with_modules", "with_flops"), True)
    npu(folder, level="Level1", steps=1, config=config, **switches)


def npu_level2(folder: Path) -> None:
    from stepscope.profiler import AiCMetrics

    config = {"aic_metrics": AiCMetrics.MemoryUB, "sys_io": True, "sys_interconnection": True}
    npu(folder, level="Level2", config=config, record_shapes=True, profile_memory=True)


def npu_rank(folder: Path) -> None:
    """One process of two."""
    import torch
    import torch.distributed as dist

    from stepscope import simnpu

    simnpu.load()
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    torch.npu.set_device(rank)
    dist.init_process_group("hccl", store=dist.FileStore(str(folder / "store"), 2), rank=rank, world_size=2)
    profiled(folder / "ranks", small_step("npu", group=True), level="Level1", steps=1)
    dist.barrier()
    dist.destroy_process_group()


def cpu(folder: Path) -> None:
    """Without a device: the operators as the collector of our own sees them."""
    profiled(folder, small_step("cpu"), device=False, record_shapes=True, profile_memory=True)


def kineto_cpu(folder: Path) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    step = small_step("cpu")
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda prof: prof.export_chrome_trace(str(folder / "node_1.1700000000000000000.pt.trace.json")),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        with_flops=True,
    ) as prof:
        for _ in range(3):
            step()
            prof.step()


def mindspore_steps(folder: Path) -> None:
    from stepscope.mindspore import Profiler, schedule

    train = mindspore_training()
    plan = schedule(wait=0, warmup=1, active=2, repeat=1)
    with Profiler(output_path=str(folder), schedule=plan, record_shapes=True, profile_memory=True) as prof:
        train(3, prof.step)


def mindspore_data(folder: Path) -> None:
    """The input pipeline; it does not go together with a schedule."""
    from stepscope.mindspore import Profiler

    train = mindspore_training()
    prof = Profiler(output_path=str(folder), data_process=True, profile_memory=True)
    train(2)
    prof.stop()


def mindspore_training() -> Any:
    import mindspore.dataset as ds
    import numpy as np

    import mindspore as ms
    from mindspore import Tensor, nn

    ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
    net = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 2))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    step(Tensor(np.ones((4, 8), np.float32)), Tensor(np.zeros(4, np.int32))).asnumpy()

    def train(steps: int, after: Any = lambda: None) -> None:
        rows = ds.GeneratorDataset(lambda: ((np.ones(8, np.float32), np.int32(0)) for _ in range(4 * steps)), ["x", "y"]).batch(4)
        for x, y in rows.create_tuple_iterator(num_epochs=1):
            step(x, y).asnumpy()
            after()

    return train


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))

# SPDX-License-Identifier: Apache-2.0
"""The training of the self-test, run by `stepscope run`: a few steps on one NPU, recorded by our profiler, raw only."""

from __future__ import annotations

import sys

STEPS = 2


def main(folder: str) -> None:
    import torch
    import torch_npu  # registers the device

    from stepscope import profiler

    torch.manual_seed(0)
    device = torch.device("npu:0")
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 16 * 16, 10)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(16, 3, 16, 16).to(device), torch.randint(0, 10, (16,)).to(device)
    config = profiler._ExperimentalConfig(
        profiler_level=profiler.ProfilerLevel.Level1, export_type=[profiler.ExportType.Text, profiler.ExportType.Db]
    )
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=1, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(folder, analyse_flag=False),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        experimental_config=config,
    ) as prof:
        for _ in range(2 + STEPS):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            prof.step()
    simulated = getattr(torch_npu, "STEPSCOPE_STAND_IN", False)
    print("torch", torch.__version__)
    print("torch_npu", "none: the simulated NPU" if simulated else torch_npu.__version__)
    print("devices", torch.npu.device_count(), torch.npu.get_device_name(0))


if __name__ == "__main__":
    main(sys.argv[1])

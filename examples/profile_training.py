"""Profile some steps of a training loop and show the result.

    python examples/profile_training.py [FOLDER]

Works wherever torch does; `import stepscope.compat` first, and the same loop runs with `torch_npu.profiler` names.
"""

from __future__ import annotations

import sys

import torch

import stepscope
from stepscope import profiler


def main(folder: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(d_model=32, nhead=4, dim_feedforward=64, batch_first=True)
    optimizer = torch.optim.AdamW(model.parameters())

    # Skip the first steps, which fill allocators and caches, warm up the profiler, then record four steps once.
    plan = profiler.schedule(wait=1, warmup=1, active=4, repeat=1)
    with profiler.profile(
        schedule=plan,
        on_trace_ready=profiler.tensorboard_trace_handler(folder),
        record_shapes=True,
        profile_memory=True,
        with_modules=True,
    ) as prof:
        prof.add_metadata("model", "one encoder layer")
        for _ in range(7):
            batch = torch.rand(8, 16, 32)
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            prof.step()

    capture = stepscope.open(prof.prof_if.prof_path)
    steady = capture.steps.filter(~capture.steps["inflated"])
    times = (steady["end_ns"] - steady["start_ns"]) / 1e6
    print(f"{capture.ops.height} operators in {capture.steps.height} steps, {times.mean():.2f} ms per steady step")
    print(f"files: {capture.path / 'ASCEND_PROFILER_OUTPUT'}")
    print(f"next:  stepscope top {capture.path}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "./result")

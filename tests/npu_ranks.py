"""Two processes with a simulated NPU each, in one hccl group: what each of them returns."""

from __future__ import annotations

import importlib
import json
import os
import traceback
from multiprocessing import get_context
from pathlib import Path
from typing import Any

SIZE = 2
SECONDS = 120  # nobody needs so long unless something is broken


def run_ranks(folder: Path, module: str, function: str) -> list[dict[str, Any]]:
    """Call `module.function(rank, store, tell)` in each process; `tell(name, value)` keeps a value for the test."""
    context = get_context("spawn")
    processes = [context.Process(target=_run, args=(rank, str(folder), module, function)) for rank in range(SIZE)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
    told = []
    for rank in range(SIZE):
        path = folder / f"{rank}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        told.append({name: value for line in lines for name, value in [json.loads(line)]})
    for values in told:
        assert "fault" not in values, values["fault"]
    assert [process.exitcode for process in processes] == [0] * SIZE, "a process crashed, or had to be killed"
    return told


def _run(rank: int, folder: str, module: str, function: str) -> None:
    import torch
    import torch.distributed as dist

    from stepscope import simnpu

    simnpu.load()
    torch.set_num_threads(1)
    torch.npu.set_device(rank)
    with (Path(folder) / f"{rank}.jsonl").open("w") as file:

        def tell(name: str, value: Any) -> None:
            file.write(json.dumps([name, value]) + "\n")
            file.flush()

        try:
            store = dist.FileStore(os.path.join(folder, "store"), SIZE)
            getattr(importlib.import_module(module), function)(rank, store, tell)
        except BaseException:
            tell("fault", f"rank {rank}: {traceback.format_exc()}")
            raise

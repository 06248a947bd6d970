"""Two processes with a simulated NPU each, in one hccl group: what each of them returns."""

from __future__ import annotations

import json
import os
import traceback
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from npu_process import module_of

SIZE = 2
SECONDS = 120  # nobody needs so long unless something is broken


def run_ranks(folder: Path, file: str, function: str) -> list[dict[str, Any]]:
    """Call `function(rank, store, tell)` of the file in each process; `tell(name, value)` keeps a value for the test."""
    context = get_context("spawn")
    processes = [context.Process(target=_run, args=(rank, str(folder), file, function)) for rank in range(SIZE)]
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


def _run(rank: int, folder: str, file: str, function: str) -> None:
    import torch
    import torch.distributed as dist

    from stepscope import simnpu

    simnpu.load()
    torch.set_num_threads(1)
    torch.npu.set_device(rank)
    with (Path(folder) / f"{rank}.jsonl").open("w") as lines:

        def tell(name: str, value: Any) -> None:
            lines.write(json.dumps([name, value]) + "\n")
            lines.flush()

        try:
            store = dist.FileStore(os.path.join(folder, "store"), SIZE)
            getattr(module_of(file), function)(rank, store, tell)
        except BaseException:
            tell("fault", f"rank {rank}: {traceback.format_exc()}")
            raise

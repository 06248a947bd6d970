# SPDX-License-Identifier: Apache-2.0
"""What other people's tools say about a Kineto trace, as JSON: `python figures.py hta|tb FOLDER_WITH_THE_TRACE`.

Runs in an environment of its own (`.venv-peers`) and imports nothing of stepscope.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Any

_VIEWS = (
    "overview", "operation_table_by_name", "operation_table_by_name_input", "kernel_table", "kernel_pie", "gpu_summary",
    "steps_to_overlap", "steps_to_wait", "comm_ops",
)  # fmt: skip


def holistic(folder: str) -> dict[str, Any]:
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_dir=folder)
    ranks = sorted(analysis.t.traces)
    by_type, by_name = analysis.get_gpu_kernel_breakdown(visualize=False)
    tables = {
        "temporal": analysis.get_temporal_breakdown(visualize=False),
        "overlap": analysis.get_comm_comp_overlap(visualize=False),
        "kernel types": by_type,
        "kernels": by_name,
        "idle": analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)[0],
        "launches": analysis.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False)[ranks[0]],
        "queue": analysis.get_queue_length_summary(ranks=ranks),
        "bandwidth": analysis.get_memory_bw_summary(ranks=ranks),
    }
    # The order of rows is that of events in the file.
    return {"ranks": ranks, **{name: _rows(table) for name, table in tables.items()}}


def _rows(table: Any) -> list[Any]:
    content = json.loads(table.to_json(orient="split"))
    named = isinstance(content["index"][0], (str, list))
    rows = [[index, *row] for index, row in zip(content["index"], content["data"], strict=True)] if named else content["data"]
    return sorted(rows, key=_key)


def _key(row: list[Any]) -> str:
    return json.dumps(row)


def tensorboard_plugin(folder: str) -> dict[str, Any]:
    from torch_tb_profiler import io
    from torch_tb_profiler.profiler import RunLoader

    with io.Cache() as caches:
        run = RunLoader("run", folder, caches).load()
    views = {worker: {name: getattr(profile, name, None) for name in _VIEWS} for (worker, _), profile in run.profiles.items()}
    return {worker: {name: view for name, view in shown.items() if view} for worker, shown in views.items()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print(json.dumps({"hta": holistic, "tb": tensorboard_plugin}[sys.argv[1]](sys.argv[2]), default=str))

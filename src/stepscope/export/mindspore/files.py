# SPDX-License-Identifier: Apache-2.0
"""Which files a MindSpore capture gets, and how those differ that both frameworks have (docs/formats/mindspore.md 9, 11)."""

from __future__ import annotations

from pathlib import Path

from stepscope.export import communication_json, hardware_csv, kernel_details, memory_csv, statistics_csv, step_trace_time
from stepscope.export.mindspore import data_files, trace
from stepscope.export.outputs import Condition, Output
from stepscope.formats.ascend import operator_details
from stepscope.tables import Facts, Tables


def database_names(rank: int) -> tuple[str, str]:
    """The capture's own database and that of the communication analysis."""
    return f"ascend_mindspore_profiler_{max(rank, 0)}.db", "communication_analyzer.db"


def write_step_trace_time(tables: Tables, folder: Path) -> list[Path]:
    return step_trace_time.write(tables, folder, with_device=False)


def write_operator_details(tables: Tables, folder: Path) -> list[Path]:
    """Operators and the shapes of their inputs; kernels where only theirs are known."""
    rows = tables.ops.select("name", "shapes").drop_nulls("shapes")
    if not rows.height:
        rows = tables.kernels.select("name", shapes="input_shapes").drop_nulls("shapes")
    return operator_details.write_shapes(folder / operator_details.FILE, rows)


def _device(facts: Facts) -> bool:
    return facts.device_kind == "npu"


def _detailed(facts: Facts) -> bool:
    return not facts.level or facts.level in ("Level1", "Level2")


def _switch(name: str) -> Condition:
    return lambda facts: not facts.level or bool(getattr(facts, name))


OUTPUTS = (
    Output(kernel_details.write_of_mindspore),
    Output(write_step_trace_time),
    Output(write_operator_details, _switch("record_shapes")),
    Output(statistics_csv.write_op_statistic, lambda facts: _detailed(facts) or not _device(facts)),
    Output(statistics_csv.write_api_statistic, _detailed),
    Output(communication_json.write, _detailed),
    Output(hardware_csv.write_data_preprocess, lambda facts: facts.level in ("", "Level2")),
    Output(memory_csv.write_memory_record_of_mindspore, _switch("profile_memory")),
    Output(memory_csv.write_operator_memory, lambda facts: _device(facts) and _switch("profile_memory")(facts)),
    Output(memory_csv.write_module_memory, lambda facts: _device(facts) and _switch("profile_memory")(facts)),
    Output(hardware_csv.write_l2_cache, _switch("l2_cache")),
    Output(hardware_csv.write_pcie, _switch("sys_interconnection")),
    Output(hardware_csv.write_hccs, _switch("sys_interconnection")),
    Output(hardware_csv.write_nic, _switch("sys_io")),
    Output(hardware_csv.write_roce, _switch("sys_io")),
    Output(data_files.write_dataset),
    Output(data_files.write_pipelines),
    Output(trace.write),
)

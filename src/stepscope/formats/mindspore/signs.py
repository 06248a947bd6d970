# SPDX-License-Identifier: Apache-2.0
"""How to tell files of MindSpore from those of other frameworks."""

from __future__ import annotations

from pathlib import Path

_RECORDS = (
    "mindspore.op_range", "mindspore.memory_usage", "op_range_[0-9]*", "cpu_op_execute_timestamp_*", "cpu_ms_memory_record_*",
    "pipeline_profiling_*.json",
)  # fmt: skip
_ENDING = "_ascend_ms"
_RUNTIME_TRACE = "RuntimeProfilerJson"


def is_mindspore(framework: Path) -> bool:
    """Whether the records in a FRAMEWORK folder are MindSpore's."""
    if any(framework.glob("torch.*")):
        return False
    return framework.parent.name.endswith(_ENDING) or any(next(framework.glob(sign), None) for sign in _RECORDS)


def is_runtime_trace(path: Path) -> bool:
    """Whether a trace is the one that MindSpore's runtime writes at exit."""
    return path.name.startswith(_RUNTIME_TRACE)

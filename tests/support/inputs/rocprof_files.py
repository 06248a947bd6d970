# SPDX-License-Identifier: Apache-2.0
"""Small results of rocprofv3 for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KINDS: dict[str, list[str]] = {
    "HIP_RUNTIME_API": ["hipLaunchKernel", "hipMemcpyAsync"],
    "MARKER_CORE_RANGE_API": ["roctxMarkA", "roctxThreadRangeA", "roctxProcessRangeA"],
    "MEMORY_COPY": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_HOST", "MEMORY_COPY_HOST_TO_DEVICE"],
    "KERNEL_DISPATCH": ["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_ENQUEUE", "KERNEL_DISPATCH_COMPLETE"],
}
GPU, CPU = 101, 100


def record(kind: str, operation: int, start: int, end: int, identity: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "size": 8, "kind": list(KINDS).index(kind), "operation": operation, "thread_id": 7,
        "correlation_id": {"internal": identity, "external": 0}, "start_timestamp": start, "end_timestamp": end, **more,
    }  # fmt: skip


def dispatch(start: int, end: int, kernel: int, identity: int = 0, **more: Any) -> dict[str, Any]:
    info = {
        "agent_id": {"handle": GPU}, "queue_id": {"handle": 3}, "kernel_id": kernel, "group_segment_size": 16,
        "workgroup_size": {"x": 64, "y": 1, "z": 1}, "grid_size": {"x": 130, "y": 2, "z": 1},
    }  # fmt: skip
    return record("KERNEL_DISPATCH", 2, start, end, identity, dispatch_info=info, stream_id={"handle": 5}) | more


def process(
    *, pid: int = 7, kernels: dict[int, str] | None = None, marks: dict[int, str] | None = None, **lists: Any
) -> dict[str, Any]:
    symbols = [
        {"kernel_id": number, "kernel_name": f"{name}.kd", "formatted_kernel_name": name, "arch_vgpr_count": 24}
        for number, name in (kernels or {}).items()
    ]
    return {
        "metadata": {
            "pid": pid, "init_time": 1, "fini_time": 9_000, "node": {"hostname": "box"}, "command": ["/usr/bin/python3", "a.py"],
        },
        "agents": [
            {"id": {"handle": CPU}, "type": 1, "name": "a [CPU]"},
            {"id": {"handle": GPU}, "type": 2, "name": "gfx950", "product_name": "AMD Instinct MI350X", "logical_node_type_id": 4},
        ],
        "strings": {
            "buffer_records": [{"kind": kind, "operations": names} for kind, names in KINDS.items()],
            "marker_api": [{"key": key, "value": text} for key, text in (marks or {}).items()],
        },
        "kernel_symbols": symbols,
        "callback_records": {"counter_collection": []},
        "buffer_records": {"kernel_dispatch": [], "hip_api": [], "memory_copy": [], "marker_api": [], **lists},
    }  # fmt: skip


def write(path: Path, *processes: dict[str, Any], indent: int | None = None) -> Path:
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(processes)}, indent=indent))
    return path

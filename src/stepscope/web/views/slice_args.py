# SPDX-License-Identifier: Apache-2.0
"""The arguments of a slice, named as the timelines name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LEFT_OUT = ("start_ns", "end_ns", "duration_ns", "pid", "tid", "name", "stack")
_NAMES: dict[str, dict[str, str]] = {
    "ops": {
        "seq": "Sequence number", "fwd_thread": "Fwd thread id", "shapes": "Input Dims", "dtypes": "Input type",
        "modules": "Module Hierarchy", "flops": "flops", "external_id": "External id",
    },
    "python_calls": {"call_id": "Python id", "parent_id": "Python parent id", "module_id": "Python module id", "kind": "kind"},
    "queue": {"correlation_id": "correlation_id", "name": "task"},
    "api_calls": {"mode": "Mode", "level": "level", "item_id": "item_id", "connection_id": "connection_id"},
    "kernels": {
        "model_id": "Model Id", "task_type": "Task Type", "stream": "Physic Stream Id", "task_id": "Task Id",
        "batch_id": "Batch Id",
        "context_id": "Subtask Id", "connection_id": "connection_id", "bytes": "size(B)", "copy_direction": "operation",
        "grid": "Grid Dim", "block": "Block Dim", "op_type": "Type", "core": "Accelerator Core", "block_num": "Block Num",
        "input_shapes": "Input Shapes", "input_dtypes": "Input Data Types", "input_formats": "Input Formats",
        "output_shapes": "Output Shapes", "output_dtypes": "Output Data Types", "output_formats": "Output Formats",
        "occupancy": "est. achieved occupancy %", "registers": "registers per thread", "shared_memory": "shared memory",
        "blocks_per_sm": "blocks per SM", "kernel_name": "Kernel Name", "external_id": "External id", "device": "device",
    },
    "collectives": {
        "rank_size": "rank_size", "connection_id": "connection_id", "model_id": "model id", "data_type": "data_type",
        "alg_type": "alg_type", "count": "count", "relay": "relay", "retry": "retry", "group": "group", "bytes": "size(Byte)",
    },
    "transfers": {
        "notify_id": "notify_id", "estimated_us": "duration estimated(us)", "stream": "stream id", "task_id": "task id",
        "context_id": "context id", "task_type": "task type", "src_rank": "src rank", "dst_rank": "dst rank",
        "transport": "transport type", "bytes": "size(Byte)", "data_type": "data type", "link": "link type",
        "bandwidth": "bandwidth(GB/s)", "model_id": "model id", "rdma_type": "rdma_type",
    },
}  # fmt: skip


def arguments(source: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Known values only; columns without a name of their own keep that of the table."""
    known = _NAMES.get(source)
    if known is None:
        return {key: value for key, value in entry.items() if value is not None and key not in _LEFT_OUT}
    return {shown: entry[key] for key, shown in known.items() if entry.get(key) is not None}

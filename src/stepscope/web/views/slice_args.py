# SPDX-License-Identifier: Apache-2.0
"""The arguments of a slice, named as the timelines name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepscope.formats.ascend import kernel_details
from stepscope.formats.ascend.trace import args

_LEFT_OUT = ("start_ns", "end_ns", "duration_ns", "pid", "tid", "name", "stack")
# Columns of each table in the order in which they are shown.
_SHOWN = {
    "ops": ("seq", "fwd_thread", "shapes", "dtypes", "modules", "flops", "external_id"),
    "python_calls": ("call_id", "parent_id", "module_id", "kind"),
    "queue": ("correlation_id", "name"),
    "api_calls": ("mode", "level", "item_id", "connection_id"),
    "kernels": (
        "model_id", "task_type", "stream", "task_id", "batch_id", "context_id", "connection_id", "bytes", "copy_direction", "grid",
        "block", "op_type", "core", "block_num", "input_shapes", "input_dtypes", "input_formats", "output_shapes", "output_dtypes",
        "output_formats", "occupancy", "registers", "shared_memory", "blocks_per_sm", "kernel_name", "external_id", "device",
    ),
    "collectives": (
        "rank_size", "connection_id", "model_id", "data_type", "alg_type", "count", "relay", "retry", "group", "bytes",
    ),
    "transfers": (
        "notify_id", "estimated_us", "stream", "task_id", "context_id", "task_type", "src_rank", "dst_rank", "transport", "bytes",
        "data_type", "link", "bandwidth", "model_id", "rdma_type",
    ),
}  # fmt: skip
_GPU, _TRANSFERS = args.names(args.GPU_TASKS), args.names(args.TRANSFERS)
# Their names: as the timelines have them, else as kernel_details.csv, else as the table.
_TITLES: dict[str, dict[str, str]] = {
    "ops": {**args.names(args.OPS), "external_id": _GPU["external_id"]},
    "python_calls": args.names(args.PYTHON_CALLS),
    "queue": {"name": "task"},
    "api_calls": args.names(args.API_CALLS),
    "kernels": {
        **_GPU,
        **kernel_details.TITLES,
        **args.names((*args.TASKS, *args.COPIES, *args.GRIDS)),
        "kernel_name": "Kernel Name",
        "device": "device",
    },
    "collectives": {**args.names(args.COLLECTIVES), "bytes": _TRANSFERS["bytes"]},
    "transfers": _TRANSFERS,
}
_NAMES = {source: {key: _TITLES[source].get(key, key) for key in keys} for source, keys in _SHOWN.items()}


def arguments(source: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Known values only; columns without a name of their own keep that of the table."""
    known = _NAMES.get(source)
    if known is None:
        return {key: value for key, value in entry.items() if value is not None and key not in _LEFT_OUT}
    return {shown: entry[key] for key, shown in known.items() if entry.get(key) is not None}

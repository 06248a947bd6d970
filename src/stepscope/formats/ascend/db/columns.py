# SPDX-License-Identifier: Apache-2.0
"""Which column of our tables a column of the database holds, for reading and writing alike (docs/formats/outputs.md 12)."""

from __future__ import annotations

import polars as pl

SPAN = {"startNs": "start_ns", "endNs": "end_ns"}
# TASK, but for the type, of which our tables keep more than one.
TASK = {
    "connectionId": "connection_id",
    "globalTaskId": "global_task_id",
    "globalPid": "pid",
    "contextId": "context_id",
    "streamId": "stream",
    "taskId": "task_id",
    "modelId": "model_id",
}
# COMPUTE_TASK_INFO: numbers of texts; those of shapes keep quotes around them.
COMPUTE_TEXTS = {
    "taskType": "core",
    "opType": "op_type",
    "inputFormats": "input_formats",
    "inputDataTypes": "input_dtypes",
    "outputFormats": "output_formats",
    "outputDataTypes": "output_dtypes",
    "attrInfo": "attrs",
    "opState": "op_state",
    "hf32Eligible": "hf32",
    "gridDim": "grid",
    "blockDim": "block",
}
COMPUTE_SHAPES = {"inputShapes": "input_shapes", "outputShapes": "output_shapes"}
# COMMUNICATION_TASK_INFO
TRANSFER = {
    "globalTaskId": "global_task_id",
    "taskType": "task_type",
    "planeId": "plane",
    "rdmaType": "rdma_type",
    "srcRank": "src_rank",
    "dstRank": "dst_rank",
    "transportType": "transport",
    "size": "bytes",
    "dataType": "data_type",
    "linkType": "link",
}
# Totals of MEMORY_RECORD, and with another prefix of OP_MEMORY.
TOTALS = {"Allocated": "total_allocated", "Reserved": "total_reserved", "Active": "total_active"}
OP_MEMORY_TOTALS = {
    f"{word}Total{name}": f"{prefix}_{column}"
    for word, prefix in (("allocation", "alloc"), ("release", "release"))
    for name, column in TOTALS.items()
}
OP_MEMORY = {
    "size": "bytes",
    "allocationTime": "start_ns",
    "releaseTime": "release_ns",
    "activeReleaseTime": "active_release_ns",
    "streamPtr": "stream_ptr",
}
_THREADS = 1 << 32


def global_tid(pid: str = "pid", tid: str = "tid") -> pl.Expr:
    """One number of a process and its thread (docs/formats/outputs.md 1)."""
    return pl.col(pid) * _THREADS + pl.col(tid)


def pid_tid(column: str = "globalTid") -> list[pl.Expr]:
    """Process and thread, the reverse of `global_tid`."""
    both = pl.col(column)
    return [(both // _THREADS).alias("pid"), (both % _THREADS).alias("tid")]


def read(columns: dict[str, str]) -> list[pl.Expr]:
    """Columns of the database under the names of our tables."""
    return [pl.col(name).alias(column) for name, column in columns.items()]


def written(columns: dict[str, str]) -> list[pl.Expr]:
    """Columns of our tables under the names of the database."""
    return [pl.col(column).alias(name) for name, column in columns.items()]

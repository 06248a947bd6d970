# SPDX-License-Identifier: Apache-2.0
"""The fields of records that are read, each once (docs/formats/rocprof.md 2)."""

from __future__ import annotations

import polars as pl

from stepscope.formats.rocprof.json_lists import Fields

SIGN = "rocprofiler-sdk-tool"

_I, _S = pl.Int64(), pl.String()
_HANDLE: Fields = {"handle": _I}
_AXES: Fields = {"x": _I, "y": _I, "z": _I}
_RECORD: Fields = {
    "kind": _I, "operation": _I, "thread_id": _I, "correlation_id": {"internal": _I}, "start_timestamp": _I, "end_timestamp": _I,
}  # fmt: skip

DISPATCH: Fields = {
    **_RECORD,
    "stream_id": _HANDLE,
    "dispatch_info": {
        "agent_id": _HANDLE, "queue_id": _HANDLE, "kernel_id": _I, "group_segment_size": _I, "workgroup_size": _AXES,
        "grid_size": _AXES,
    },
}  # fmt: skip
COPY: Fields = {**_RECORD, "stream_id": _HANDLE, "dst_agent_id": _HANDLE, "src_agent_id": _HANDLE, "bytes": _I}
CALL: Fields = _RECORD
SYMBOL: Fields = {
    "kernel_id": _I, "kernel_name": _S, "formatted_kernel_name": _S, "demangled_kernel_name": _S, "arch_vgpr_count": _I,
}  # fmt: skip

DISPATCHES, COPIES, MARKERS = "kernel_dispatch", "memory_copy", "marker_api"
# Lists of calls, with the level under which they are shown.
CALLS = {"hip_api": "hip_runtime", "hsa_api": "hsa", "rccl_api": "rccl"}
# Lists that are not shown; their records are counted.
UNREAD = (
    "memory_allocation", "scratch_memory", "rocdecode_api", "rocjpeg_api", "pc_sample_host_trap", "pc_sample_stochastic",
    "counter_collection", "kfd_events",
)  # fmt: skip

COPY_DIRECTIONS = {
    "MEMORY_COPY_HOST_TO_HOST": "host to host", "MEMORY_COPY_HOST_TO_DEVICE": "host to device",
    "MEMORY_COPY_DEVICE_TO_HOST": "device to host", "MEMORY_COPY_DEVICE_TO_DEVICE": "device to device",
}  # fmt: skip
GPU_AGENT = 2

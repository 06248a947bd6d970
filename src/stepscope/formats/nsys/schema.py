# SPDX-License-Identifier: Apache-2.0
"""The tables and columns of an export that are read, each once (docs/formats/nsys.md 2)."""

from __future__ import annotations

from stepscope.render.sqlite_table import DbColumn

STRINGS = "StringIds"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
FILLS = "CUPTI_ACTIVITY_KIND_MEMSET"
WAITS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
OVERHEAD = "CUPTI_ACTIVITY_KIND_OVERHEAD"
NVTX = "NVTX_EVENTS"
# Calls of libraries on the host, with the level under which they are shown.
LIBRARY_CALLS = {"OSRT_API": "osrt", "CUBLAS_EVENTS": "cublas", "CUDNN_EVENTS": "cudnn"}

_SPAN = ("start", "end")


def _columns(numbers: str, strings: str = "", texts: str = "") -> tuple[DbColumn, ...]:
    kinds = (("I", numbers), ("S", strings), ("T", texts))
    return tuple(DbColumn(name, kind) for kind, names in kinds for name in names.split())


_TASK = "start end deviceId contextId streamId correlationId globalPid graphNodeId"
_CALL = "start end eventClass globalTid correlationId"

COLUMNS: dict[str, tuple[DbColumn, ...]] = {
    KERNELS: _columns(
        f"{_TASK} gridX gridY gridZ blockX blockY blockZ registersPerThread staticSharedMemory dynamicSharedMemory",
        "demangledName shortName mangledName",
    ),
    COPIES: _columns(f"{_TASK} bytes copyKind"),
    FILLS: _columns(f"{_TASK} bytes"),
    WAITS: _columns(f"{_TASK} syncType eventId"),
    GRAPHS: _columns(f"{_TASK} graphId"),
    RUNTIME: _columns(_CALL, "nameId"),
    OVERHEAD: _columns(_CALL, "nameId"),
    **{table: _columns(_CALL, "nameId") for table in LIBRARY_CALLS},
    NVTX: _columns("start end eventType rangeId category globalTid endGlobalTid domainId", "textId", "text"),
    "TARGET_INFO_SESSION_START_TIME": _columns("utcEpochNs systemClockNs"),
    "ANALYSIS_DETAILS": _columns("startTime stopTime"),
    "TARGET_INFO_GPU": _columns("id totalMemory smCount memoryBandwidth computeMajor computeMinor", "", "name chipName uuid"),
    "TARGET_INFO_CUDA_DEVICE": _columns("gpuId cudaId pid"),
    "TARGET_INFO_SYSTEM_ENV": _columns("", "", "name value"),
    "META_DATA_EXPORT": _columns("", "", "name value"),
    "PROCESSES": _columns("globalPid pid", "", "name"),
}
REQUIRED = dict.fromkeys((KERNELS, COPIES, FILLS, WAITS, GRAPHS, RUNTIME, OVERHEAD, *LIBRARY_CALLS), _SPAN) | {NVTX: ("start",)}
# What says that a database is an export; one of them is enough.
SIGNS = (KERNELS, COPIES, FILLS, GRAPHS, RUNTIME, NVTX, *LIBRARY_CALLS)

RUNTIME_CLASSES = {0: "cuda_runtime", 1: "cuda_driver"}
COPY_KINDS = {
    1: "host to device", 2: "device to host", 3: "host to array", 4: "array to host", 5: "array to array", 6: "array to device",
    7: "device to array", 8: "device to device", 9: "host to host", 10: "peer to peer", 11: "host to device", 12: "device to host",
    13: "device to device",
}  # fmt: skip
SYNC_KINDS = {1: "Event sync", 2: "Stream wait sync", 3: "Stream sync", 4: "Context sync"}
# Kinds of NVTX events: marks and ranges, and the event that names a domain.
NVTX_KINDS = {34: "marker", 59: "push/pop", 60: "start/end", 65: "marker", 70: "push/pop", 71: "start/end"}
NVTX_DOMAIN = 75
# Names of categories and threads, and the ends of domains: they describe other events.
NVTX_DESCRIPTIONS = (33, 39, 64, 72, 73, 74, 76)

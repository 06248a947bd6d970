# SPDX-License-Identifier: Apache-2.0
"""Names of record types that a writer puts into the type dictionary (docs/formats/cann.md 3.1, 3.4)."""

from __future__ import annotations

from collections.abc import Mapping

MSPROFTX, ACL, MODEL, NODE, AICPU, COMMUNICATION, RUNTIME = 20500, 20000, 15000, 10000, 6000, 5500, 5000

LAUNCH = 5  # node level: an operator is launched
MASTER, SLAVE = 0x10001, 0x10002  # communication level: on the main stream, on another
ACL_GROUPS = {
    "ACL_OP": 1, "ACL_MODEL": 2, "ACL_RTS": 3, "ACL_OTHERS": 4, "ACL_NN": 5, "ACL_ASCENDC": 6, "HOST_HCCL": 7, "ACL_DVPP": 9,
    "ACL_GRAPH": 10, "ACL_ATB": 11, "HIXL": 12,
}  # fmt: skip

TASK_TYPES: Mapping[int, str] = {
    0: "KERNEL_AICORE", 1: "KERNEL_AICPU", 2: "EVENT_RECORD", 3: "EVENT_WAIT", 4: "KERNEL_FUSION", 5: "MEMCPY_ASYNC",
    6: "MAINTENANCE", 7: "CREATE_STREAM", 9: "REMOTE_EVENT_WAIT", 12: "MODEL_MAINTAINCE", 13: "MODEL_EXECUTE", 14: "NOTIFY_WAIT",
    15: "NOTIFY_RECORD", 16: "RDMA_SEND", 18: "STREAM_SWITCH", 19: "STREAM_ACTIVE", 20: "LABEL_SET", 21: "LABEL_SWITCH",
    22: "LABEL_GOTO", 23: "PROFILER_TRACE", 24: "EVENT_RESET", 25: "RDMA_DB_SEND", 26: "PROFILER_TRACE_EX", 50: "STARS_COMMON",
    52: "FFTS_PLUS", 53: "CMO", 54: "BARRIER", 55: "WriteValueTask", 56: "MULTIPLE_TASK", 64: "PROFILING_ENABLE",
    65: "PROFILING_DISABLE", 66: "KERNEL_AIVEC", 67: "MODEL_END_GRAPH", 68: "MODEL_TO_AICPU", 72: "HOSTFUNC_CALLBACK",
    83: "DEVICE_RINGBUFFER_CONTROL", 86: "TASK_TIMEOUT_SET", 92: "REDUCE_ASYNC_V2", 98: "FLIP_TASK", 108: "KERNEL_MIX_AIC",
    109: "KERNEL_MIX_AIV", 126: "CAPTURE_RECORD", 127: "CAPTURE_WAIT",
}  # fmt: skip
FLIP_TASK = 98

_RUNTIME_CALLS = {
    801: "memcpy_info", 802: "task_track", 803: "capture_stream_info", 804: "expand_stream_spec", 805: "capture_op_info",
    1003: "KernelLaunch", 1006: "StreamCreate", 1007: "StreamDestroy", 1008: "StreamWaitEvent", 1009: "StreamSynchronize",
    1010: "EventCreate", 1011: "EventDestroy", 1012: "EventRecord", 1013: "EventSynchronize", 1014: "DevMalloc", 1015: "DevFree",
    1016: "HostMalloc", 1017: "HostFree", 1020: "MemCopySync", 1022: "SetDevice", 1024: "DeviceSynchronize",
    1039: "ModelExecute", 1042: "RDMASend", 1045: "NotifyRecord", 1046: "NotifyWait", 1063: "KernelLaunchWithHandle",
    1072: "CpuKernelLaunch", 1074: "ReduceAsync", 1103: "MemcpyAsync", 1105: "ReduceAsyncV2", 1109: "FftsPlusTaskLaunch",
}  # fmt: skip
_NODE_TYPES = {
    0: "node_basic_info", 1: "tensor_info", 2: "fusion_op_info", 4: "context_id_info", LAUNCH: "launch", 6: "task_memory_info",
    8: "host_op_exec", 9: "node_attr_info", 10: "hccl_op_info", 11: "static_op_mem", 12: "mc2_comm_info", 13: "op_info",
}  # fmt: skip
_MODEL_TYPES = {
    0: "graph_id_map", 1: "ModelExecute", 2: "ModelLoad", 3: "InputCopy", 4: "OutputCopy", 7: "logic_stream_info",
}  # fmt: skip

TYPE_NAMES: Mapping[int, Mapping[int, str]] = {
    RUNTIME: {**TASK_TYPES, **_RUNTIME_CALLS},
    COMMUNICATION: {0: "hccl_info", 4: "context_id_info", MASTER: "master", SLAVE: "slave"},
    NODE: _NODE_TYPES,
    MODEL: _MODEL_TYPES,
    MSPROFTX: {0: "msproftx"},
}
RUNTIME_CALLS: Mapping[str, int] = {name: number for number, name in _RUNTIME_CALLS.items() if number >= 1000}

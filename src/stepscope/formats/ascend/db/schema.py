# SPDX-License-Identifier: Apache-2.0
"""Tables of the Ascend databases as data: columns with SQL types, indexes, enumerations.

See docs/formats/outputs.md 12 and docs/formats/enums.md 1. The layout is that of the current generation;
`OLD_COLUMNS` holds what earlier ones named differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stepscope.render.sqlite_table import DbColumn, DbTable
from stepscope.tables.npu_kinds import API_LEVELS

SCHEMA_VERSION = "1.2.0"

# Id ranges and sentinels (docs/formats/enums.md 8).
FRAMEWORK_STRINGS = 1 << 28
MEMORY_STRINGS = 2 << 28
FRAMEWORK_CONNECTIONS = 5 << 28
NO_CONNECTION = -1
NO_NOTIFY = -1
NO_NOTIFY_OLD = (1 << 63) - 1
NO_DEVICE_MARK = 4000000000  # connection id of an mstx mark without device part

OP, QUEUE, TRACE = (API_LEVELS[word] for word in ("op", "queue", "trace"))  # PYTORCH_API.type


def _table(name: str, layout: str, index: str = "") -> DbTable:
    columns = []
    for item in layout.split():
        column, kind = item.split(":")
        columns.append(DbColumn(column, kind.rstrip("*"), kind.endswith("*")))
    return DbTable(name, tuple(columns), index)


_NIC = (
    "deviceId:I timestampNs:I bandwidth:I rxPacketRate:N rxByteRate:N rxPackets:I rxBytes:I rxErrors:I rxDropped:I "
    "txPacketRate:N txByteRate:N txPackets:I txBytes:I txErrors:I txDropped:I funcId:I"
)
PCIE_COUNTERS = ("txPost", "txNonpost", "txCpl", "txNonpostLatency", "rxPost", "rxNonpost", "rxCpl")

_PROFILER_TABLES = (
    # Framework part (docs/formats/outputs.md 12.1).
    _table("STRING_IDS", "id:I* value:T"),
    _table(
        "PYTORCH_API",
        "startNs:I endNs:I globalTid:I connectionId:I name:S sequenceNumber:I fwdThreadId:I inputDtypes:S inputShapes:S "
        "callchainId:I type:I",
    ),
    _table("CONNECTION_IDS", "id:I connectionId:I"),
    _table("PYTORCH_CALLCHAINS", "id:I stack:S stackDepth:I"),
    _table("MEMORY_RECORD", "component:S timestamp:I totalAllocated:I totalReserved:I totalActive:I streamPtr:I deviceId:I"),
    _table(
        "OP_MEMORY",
        "name:S size:I allocationTime:I releaseTime:I activeReleaseTime:I duration:I activeDuration:I "
        "allocationTotalAllocated:I allocationTotalReserved:I allocationTotalActive:I "
        "releaseTotalAllocated:I releaseTotalReserved:I releaseTotalActive:I streamPtr:I deviceId:I",
    ),
    _table("RANK_DEVICE_MAP", "rankId:I deviceId:I"),
    _table("STEP_TIME", "id:I startNs:I endNs:I"),
    _table("GC_RECORD", "startNs:I endNs:I globalTid:I"),
    _table("META_DATA", "name:T value:T"),
    _table("HOST_INFO", "hostUid:T hostName:T"),
    # CANN part (docs/formats/outputs.md 12.2).
    _table("SESSION_TIME_INFO", "startTimeNs:I endTimeNs:I"),
    _table("NPU_INFO", "id:I name:T"),
    _table(
        "TASK",
        "startNs:I endNs:I deviceId:I connectionId:I globalTaskId:I globalPid:I taskType:S contextId:I streamId:I taskId:I "
        "modelId:I",
        "CREATE INDEX TaskIndex ON TASK (startNs, globalTaskId)",
    ),
    _table(
        "COMPUTE_TASK_INFO",
        "name:S globalTaskId:I* blockNum:I mixBlockNum:I taskType:S opType:S inputFormats:S inputDataTypes:S inputShapes:S "
        "outputFormats:S outputDataTypes:S outputShapes:S attrInfo:S opState:S hf32Eligible:S gridDim:S blockDim:S",
    ),
    _table(
        "COMMUNICATION_OP",
        "opName:S startNs:I endNs:I connectionId:I groupName:S opId:I* relay:I retry:I dataType:I algType:S count:K opType:S "
        "deviceId:I rankSize:I",
    ),
    _table(
        "COMMUNICATION_TASK_INFO",
        "name:S globalTaskId:I taskType:S planeId:I groupName:S notifyId:I rdmaType:I srcRank:I dstRank:I transportType:I "
        "size:I dataType:I linkType:I opId:I isMaster:I bandwidth:N",
        "CREATE INDEX CommunicationTaskIndex ON COMMUNICATION_TASK_INFO (globalTaskId)",
    ),
    _table("COMMUNICATION_SCHEDULE_TASK_INFO", "name:S globalTaskId:I* taskType:S opType:S"),
    _table("CANN_API", "startNs:I endNs:I type:I globalTid:I connectionId:I* name:S"),
    _table("TASK_PMU_INFO", "globalTaskId:I name:S value:N"),
    _table("MEMCPY_INFO", "globalTaskId:K size:K memcpyOperation:K"),
    _table(
        "MSTX_EVENTS",
        "startNs:I endNs:I eventType:I rangeId:I category:I message:S globalTid:I endGlobalTid:I domainId:S connectionId:I",
    ),
    _table("NPU_MEM", "type:S ddr:N hbm:N timestampNs:I deviceId:I"),
    _table("NPU_MODULE_MEM", "moduleId:I timestampNs:I totalReserved:N deviceId:I"),
    _table(
        "NPU_OP_MEM",
        "operatorName:S addr:I type:S size:I timestampNs:I globalTid:I totalAllocate:N totalReserve:N component:S deviceId:I",
    ),
    _table("HBM", "deviceId:I timestampNs:I bandwidth:N hbmId:I type:S"),
    _table("DDR", "deviceId:I timestampNs:I read:N write:N"),
    _table("LLC", "deviceId:I llcId:I timestampNs:I hitRate:R throughput:I mode:S"),
    _table("QOS", "deviceId:I eventName:Z bandwidth:N timestampNs:K dieId:K"),
    _table("AICORE_FREQ", "deviceId:I timestampNs:K freq:I dieId:K"),
    _table("ACC_PMU", "accId:I readBwLevel:I writeBwLevel:I readOstLevel:I writeOstLevel:I timestampNs:K deviceId:I"),
    _table("SOC_BANDWIDTH_LEVEL", "l2BufferBwLevel:I mataBwLevel:I timestampNs:K deviceId:I"),
    _table("NIC", _NIC),
    _table("ROCE", _NIC),
    _table(
        "NETDEV_STATS",
        "deviceId:I timestampNs:I macTxPfcPkt:I macRxPfcPkt:I macTxByte:I macTxBandwidth:N macRxByte:I macRxBandwidth:N "
        "macTxBadByte:I macRxBadByte:I roceTxPkt:I roceRxPkt:I roceTxErrPkt:I roceRxErrPkt:I roceTxCnpPkt:I roceRxCnpPkt:I "
        "roceNewPktRty:I nicTxByte:I nicTxBandwidth:N nicRxByte:I nicRxBandwidth:N",
    ),
    _table(
        "PCIE",
        "deviceId:I timestampNs:I "
        + " ".join(f"{name}{part}:N" for name in PCIE_COUNTERS for part in ("Min", "Max", "Avg")),
    ),
    _table("HCCS", "deviceId:I timestampNs:I txThroughput:N rxThroughput:N"),
    _table("SIO", "deviceId:K name:Z timestampNs:K rxReq:N rxRsp:N rxSnp:N rxDat:N txReq:N txRsp:N txSnp:N txDat:N"),
    _table("UB", "deviceId:K portId:K timestampNs:K rxUdmaBind:N txUdmaBind:N"),
    _table("CPU_USAGE", "timestampNs:K cpuId:K usage:N"),
    _table("HOST_MEM_USAGE", "timestampNs:K usage:N"),
    _table("HOST_DISK_USAGE", "timestampNs:K readRate:N writeRate:N usage:N"),
    _table("HOST_NETWORK_USAGE", "timestampNs:K usage:N speed:N"),
    _table("OSRT_API", "name:Z globalTid:K startNs:K endNs:K"),
    _table("OVERLAP_ANALYSIS", "id:I* deviceId:I startNs:K endNs:K type:I"),
)  # fmt: skip

_ANALYSIS_TABLES = (
    # docs/formats/outputs.md 7 and 12.3; the times of StepTraceTime are microseconds.
    _table(
        "StepTraceTime",
        "deviceId:I step:T computing:N communication_not_overlapped:N overlapped:N communication:N free:N stage:N bubble:N "
        "communication_not_overlapped_and_exclude_receive:N preparing:N",
    ),
    _table(
        "CommAnalyzerBandwidth",
        "hccl_op_name:T group_name:T transport_type:T transit_size:N transit_time:N bandwidth:N large_packet_ratio:N "
        "package_size:N count:K total_duration:N step:T type:T",
    ),
    _table(
        "CommAnalyzerMatrix",
        "hccl_op_name:T group_name:T src_rank:T dst_rank:T transport_type:T transit_size:N transit_time:N bandwidth:N step:T "
        "type:T op_name:T",
    ),
    _table(
        "CommAnalyzerTime",
        "hccl_op_name:T group_name:T start_timestamp:N elapse_time:N transit_time:N wait_time:N synchronization_time:N "
        "idle_time:N step:T type:T",
    ),
)

PROFILER_DB: dict[str, DbTable] = {table.name: table for table in _PROFILER_TABLES}
ANALYSIS_DB: dict[str, DbTable] = {table.name: table for table in _ANALYSIS_TABLES}

# Kind of columns that only earlier generations have; `mixBlockDim` became `mixBlockNum`.
OLD_COLUMNS: Mapping[str, tuple[DbColumn, ...]] = {"COMPUTE_TASK_INFO": (DbColumn("mixBlockDim", "I"),)}

# Tables the profiler writes whose records have no place in our tables (docs/formats/outputs.md 12.2).
WITHOUT_HOME = ("SAMPLE_PMU_TIMELINE", "SAMPLE_PMU_SUMMARY", "CCU", "DPU_TASK")


def _numbered(words: str) -> dict[int, str]:
    """Names by position; `-` leaves a number out."""
    return {number: name for number, name in enumerate(words.split()) if name != "-"}


_MODULES = _numbered(
    "SLOG IDEDD SCC HCCL FMK CCU DVPP RUNTIME CCE HDC DRV NET - - - - - - - - - - DEVMM KERNEL LIBMEDIA CCECPU - ROS HCCP ROCE "
    "TEFUSION PROFILING DP APP TS TSDUMP AICPU LP TDT FE MD MB ME IMU IMP GE - CAMERA ASCENDCL TEEOS ISP SIS HSM DSS PROCMGR "
    "BBOX AIVECTOR TBE FV - TUNE HSS FFTS OP UDF HICAID TSYNC AUDIO TPRT ASCENDCKERNEL ASYS ATRACE RTC SYSMONITOR AMP ADETECT "
    "MBUFF CUSTOM"
)
_OLD_MODULES = (
    "MDCFUSION", "MDCLOCATION", "MDCPERCEPTION", "MDCFSM", "MDCCOMMON", "MDCMONITOR", "MDCBSWP", "MDCDEFAULT", "MDCSC", "MDCPNC",
    "MLL",
)  # fmt: skip
_NONE = {65534: "N/A", 65535: "INVALID_TYPE"}

ENUMS: dict[str, dict[int, str]] = {
    "ENUM_API_TYPE": {number: name for name, number in API_LEVELS.items()},
    "ENUM_HCCL_DATA_TYPE": {
        **_numbered("INT8 INT16 INT32 FP16 FP32 INT64 UINT64 UINT8 UINT16 UINT32 FP64 BFP16 INT128"),
        14: "HIF8",
        15: "FP8E4M3",
        16: "FP8E5M2",
        17: "FP8E8M0",
        255: "RESERVED",
        **_NONE,
    },
    "ENUM_HCCL_LINK_TYPE": {
        **_numbered("ON_CHIP HCCS PCIE ROCE SIO HCCS_SW STANDARD_ROCE UB UBoE"),
        255: "RESERVED",
        **_NONE,
    },
    "ENUM_HCCL_TRANSPORT_TYPE": {**_numbered("SDMA RDMA LOCAL UB ROCE"), 255: "RESERVED", **_NONE},
    "ENUM_HCCL_RDMA_TYPE": {0: "RDMA_SEND_NOTIFY", 1: "RDMA_SEND_PAYLOAD", 255: "RESERVED", **_NONE},
    "ENUM_MSTX_EVENT_TYPE": {0: "marker", 1: "push/pop", 2: "start/end", 3: "marker_ex"},
    "ENUM_MEMCPY_OPERATION": {
        0: "host to host",
        1: "host to device",
        2: "device to host",
        3: "device to device",
        4: "managed memory",
        5: "addr device to device",
        6: "host to device ex",
        7: "device to host ex",
        65535: "other",
    },
    "ENUM_OVERLAP_ANALYSIS_TYPE": {0: "COMPUTE", 1: "COMMUNICATION", 2: "COMM_NOT_OVERLAP_COMP", 3: "FREE", 65535: "RESERVE"},
    "ENUM_MODULE": _MODULES,
}

# Names of the first generation that the current enumerations no longer have.
OLD_ENUMS: dict[str, dict[int, str]] = {
    "ENUM_HCCL_RDMA_TYPE": {2: "RDMA_PAYLOAD_PREPARE", 3: "RDMA_PAYLOAD_CHECK", 4: "RDMA_PAYLOAD_ACK", 5: "RDMA_SEND_OP"},
    "ENUM_MODULE": {
        2: "IDEDH",
        5: "HIAIENGINE",
        **{11 + number: name for number, name in enumerate(_OLD_MODULES)},
        26: "ASCENDDK",
        46: "MDCFUSA",
        59: "MDCMAP",
        74: "AML",  # so the csv files of that generation, where its database says AMP
    },
}
# Words that an old fixture stores as numbers where real databases store string ids (docs/formats/enums.md 1, ENUM_MEMORY).
OLD_MEMORY_WORDS = {0: "app", 1: "device", 3: "read", 4: "write", 5: "allocate", 6: "release"}
# Texts of enumerations and string columns that stand for "nothing".
NOTHING = ("N/A", "INVALID_TYPE", "RESERVED")


def enum_with(name: str, used: Iterable[str]) -> dict[int, str]:
    """The current enumeration; where `used` has a name of an earlier one, that name stands at its number.

    Names that no generation knows get numbers behind the last one, so that their rows are not lost.
    """
    needed = set(used) - set(ENUMS[name].values())
    known = {**ENUMS[name], **{number: old for number, old in OLD_ENUMS.get(name, {}).items() if old in needed}}
    free = 1 + max((number for number in known if number < 255), default=0)
    return {**known, **dict(enumerate(sorted(needed - set(known.values())), start=free))}

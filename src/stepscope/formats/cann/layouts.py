# SPDX-License-Identifier: Apache-2.0
"""Which bytes a raw device-profiling record is made of: one declaration per kind (docs/formats/cann.md 3 to 5).

A kind is a numpy dtype with explicit offsets, the file it is found in and how valid records are recognised. Readers and
writers use the same dtype, so what is written is what is read. `evidence` is the mark of docs/formats/cann.md: R real
bytes, W the writer's declarations, P a parser's, S accepted by the reference parser when synthesised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

HOST_MAGIC = 0x5A5A
STARS_MAGIC = 0x6BD3
EVENT_END = 0xFFFF_FFFF_FFFF_FFFF  # `end` of an api_event record that is an event, not a call

# Levels of host records (docs/formats/cann.md 3.1).
LEVELS = {
    30000: "pytorch", 25000: "pta", 20500: "msproftx", 20000: "acl", 15000: "model", 10000: "node", 6000: "aicpu",
    5500: "communication", 5000: "runtime", 4500: "prof", 4000: "dpu", 3000: "aic",
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """One kind of record: where it lies, what it looks like, how a broken one is recognised."""

    file: str  # `compact.task_track` under host/data, `stars_soc.data` under device_<id>/data
    dtype: np.dtype[Any]
    evidence: str
    magic: int | None = None  # value of field `magic`; None when the record has none

    @property
    def size(self) -> int:
        return self.dtype.itemsize


def _struct(size: int, /, **fields: tuple[int, Any] | tuple[int, Any, int]) -> np.dtype[Any]:
    """A packed struct of `size` bytes; each field is (offset, type) or (offset, type, count)."""
    return np.dtype(
        {
            "names": list(fields),
            "formats": [spec[1] if len(spec) == 2 else (spec[1], spec[2]) for spec in fields.values()],
            "offsets": [spec[0] for spec in fields.values()],
            "itemsize": size,
        }
    )


_HEAD: dict[str, tuple[int, str]] = {
    "magic": (0, "<u2"), "level": (2, "<u2"), "type": (4, "<u4"), "tid": (8, "<u4"), "length": (12, "<u4"), "stamp": (16, "<u8"),
}  # fmt: skip


def _compact(tag: str, evidence: str, /, **fields: Any) -> Layout:
    return Layout(f"compact.{tag}", _struct(64, **_HEAD, **fields), evidence, HOST_MAGIC)


def _additional(tag: str, evidence: str, /, **fields: Any) -> Layout:
    return Layout(f"additional.{tag}", _struct(256, **_HEAD, **fields), evidence, HOST_MAGIC)


def _device(file: str, size: int, evidence: str, expected: int | None = None, /, **fields: Any) -> Layout:
    return Layout(file, _struct(size, **fields), evidence, expected)


TENSOR = _struct(44, kind=(0, "<u4"), format=(4, "<u4"), dtype=(8, "<u4"), shape=(12, "<u4", 8))
LPM_POINT = _struct(16, counter=(0, "<u8"), value=(8, "<u4"))

_STARS: dict[str, Any] = {"head": (0, "<u2"), "magic": (2, "<u2"), "stream": (4, "<u2"), "task": (6, "<u2"), "counter": (8, "<u8")}
_PMU: dict[str, Any] = {
    "head": (0, "<u2"), "magic": (2, "<u2"), "stream": (4, "<u2"), "task": (6, "<u2"), "sub_type": (16, "<u2"),
    "sub_task": (18, "<u2"), "cycles": (32, "<u8"), "counters": (48, "<u8", 8), "start": (112, "<u8"), "end": (120, "<u8"),
}  # fmt: skip
_TS: dict[str, Any] = {"mode": (0, "u1"), "kind": (1, "u1"), "size": (2, "<u2"), "counter": (8, "<u8")}
_AICPU_TIMES: dict[str, Any] = {
    "run_start": (32, "<u8"), "run_start_tick": (40, "<u8"), "compute_start": (48, "<u8"), "memcpy_start": (56, "<u8"),
    "memcpy_end": (64, "<u8"), "run_end": (72, "<u8"), "run_end_tick": (80, "<u8"), "thread": (88, "<u4"), "device": (92, "<u4"),
    "submit_tick": (96, "<u8"), "schedule_tick": (104, "<u8"), "before_run_tick": (112, "<u8"), "after_run_tick": (120, "<u8"),
    "kernel_type": (128, "<u4"), "dispatch_us": (132, "<u4"), "total_us": (136, "<u4"), "ffts_thread": (140, "<u2"),
    "version": (142, "u1"),
}  # fmt: skip

# Host records.
API_EVENT = Layout(
    "api_event.data",
    _struct(
        40, magic=(0, "<u2"), level=(2, "<u2"), type=(4, "<u4"), tid=(8, "<u4"), request=(12, "<u4"), begin=(16, "<u8"),
        end=(24, "<u8"), item=(32, "<u8"),
    ),
    "R",
    HOST_MAGIC,
)  # fmt: skip
NODE_BASIC_INFO = _compact(
    "node_basic_info", "R",
    op_name=(24, "<u8"), task_type=(32, "<u4"), op_type=(36, "<u8"), block_num=(44, "<u4"), flag=(48, "<u4"),
)  # fmt: skip
NODE_ATTR_INFO = _compact("node_attr_info", "P", op_name=(24, "<u8"), attr_kind=(32, "<u4"), attr=(36, "<u8"))
TASK_TRACK = _compact(
    "task_track", "R",
    device=(24, "<u2"), stream=(26, "<u2"), task=(28, "<u2"), flip=(30, "<u2"), task_type=(32, "<u8"), kernel=(40, "<u8"),
    extension=(48, "u1", 16),
)  # fmt: skip
# Chips with task numbers that are unique on the device: 32 bits, no flips (docs/formats/cann.md 6.9).
TASK_TRACK_UNIQUE = _compact(
    "task_track", "S",
    device=(24, "<u2"), stream=(26, "<u2"), task=(28, "<u4"), task_type=(32, "<u8"), kernel=(40, "<u8"), extension=(48, "u1", 16),
)  # fmt: skip
# Newer runtimes write this one instead: stream numbers of 32 bits.
TASK_TRACK_V2 = _compact(
    "task_track_v2", "P",
    device=(24, "<u2"), stream=(28, "<u4"), task=(32, "<u2"), flip=(34, "<u2"), task_type=(36, "<u4"), kernel=(40, "<u8"),
    extension=(48, "u1", 16),
)  # fmt: skip
TASK_TRACK_V2_UNIQUE = _compact(
    "task_track_v2", "P",
    device=(24, "<u2"), stream=(28, "<u4"), task=(32, "<u4"), task_type=(36, "<u4"), kernel=(40, "<u8"), extension=(48, "u1", 16),
)  # fmt: skip
# Two layouts of one record: `maximum` and `direction` of the older, `direction_new` of the newer (docs/formats/cann.md 3.4).
MEMCPY_INFO = _compact(
    "memcpy_info", "PS",
    bytes=(24, "<u8"), maximum=(32, "<u8"), direction=(40, "<u2"), direction_new=(32, "<u2"), device_new=(34, "<u2"),
    stream_new=(36, "<u4"),
)  # fmt: skip
EXPAND_STREAM_SPEC = _compact("expand_stream_spec", "R", wide=(24, "u1"))
CAPTURE_STREAM_INFO = _compact(
    "capture_stream_info", "W",
    status=(24, "<u2"), model_stream=(26, "<u2"), stream=(28, "<u2"), model=(30, "<u2"), device=(32, "<u2"),
)  # fmt: skip
HCCL_OP_INFO = _compact(
    "hccl_op_info", "WS",
    flags=(24, "u1"), data_type=(25, "u1"), algorithm=(26, "<u8"), count=(34, "<u8"), group=(42, "<u8"),
)  # fmt: skip
TENSOR_INFO = _additional("tensor_info", "R", op_name=(24, "<u8"), count=(32, "<u4"), tensors=(36, TENSOR, 5))
CONTEXT_ID_INFO = _additional("context_id_info", "R", op_name=(24, "<u8"), count=(32, "<u4"), ids=(36, "<u4", 55))
FUSION_OP_INFO = _additional(
    "fusion_op_info", "P",
    op_name=(24, "<u8"), count=(32, "<u4"), input_bytes=(36, "<u8"), output_bytes=(44, "<u8"), weight_bytes=(52, "<u8"),
    workspace_bytes=(60, "<u8"), total_bytes=(68, "<u8"), ops=(76, "<u8", 8),
)  # fmt: skip
TASK_MEMORY_INFO = _additional(
    "task_memory_info", "PS",
    address=(24, "<u8"), bytes=(32, "<i8"), op_name=(40, "<u8"), allocated=(48, "<u8"), reserved=(56, "<u8"), device=(64, "<u4"),
    device_type=(68, "<u4"),
)  # fmt: skip
STATIC_OP_MEM = _additional(
    "static_op_mem", "W",
    bytes=(24, "<i8"), op_name=(32, "<u8"), life_start=(40, "<u8"), life_end=(48, "<u8"), allocated=(56, "<u8"),
    dynamic_op=(64, "<u8"), graph=(72, "<u4"),
)  # fmt: skip
HCCL_INFO = _additional(
    "hccl_info", "WS",
    task_name=(24, "<u8"), tag=(32, "<u8"), group=(40, "<u8"), local_rank=(48, "<u4"), remote_rank=(52, "<u4"),
    rank_size=(56, "<u4"), flow_mode=(60, "<u4"), plane=(64, "<u4"), context=(68, "<u4"), notify=(72, "<u8"), stage=(80, "<u4"),
    role=(84, "<u4"), estimated_us=(88, "<f8"), source=(96, "<u8"), destination=(104, "<u8"), bytes=(112, "<u8"),
    reduce_op=(120, "<u4"), data_type=(124, "<u4"), link=(128, "<u4"), transport=(132, "<u4"), rdma=(136, "<u4"),
)  # fmt: skip
MC2_COMM_INFO = _additional(
    "mc2_comm_info", "W",
    group=(24, "<u8"), rank_size=(32, "<u4"), rank=(36, "<u4"), global_rank=(40, "<u4"), aicpu_stream=(44, "<u4"),
    count=(48, "<u4"), streams=(52, "<u4", 8),
)  # fmt: skip
MULTI_THREAD = _additional("Multi_Thread", "P", count=(24, "<u4"), threads=(28, "<u4", 25))
GRAPH_ID_MAP = _additional("graph_id_map", "P", model_name=(24, "<u8"), graph=(32, "<u4"), model=(36, "<u4"))
LOGIC_STREAM_INFO = _additional("logic_stream_info", "P", logic=(24, "<u4"), count=(28, "<u4"), streams=(32, "<u4", 56))
MSPROFTX = _additional(
    "msproftx", "WS",
    source=(24, "<u2"), segment=(26, "<u2"), inner_magic=(32, "<u2"), tag=(34, "<u2"), pid=(36, "<u4"), mark_tid=(40, "<u4"),
    category=(44, "<u4"), event=(48, "<u4"), payload_type=(52, "<i4"), payload=(56, "<u8"), begin=(64, "<u8"), end=(72, "<u8"),
    mark=(80, "<u8"), domain=(88, "<u8"), message_type=(96, "<i4"), message=(100, "S156"),
)  # fmt: skip

# Device records.
STARS = _device(
    "stars_soc.data", 64, "R", STARS_MAGIC,
    **_STARS, sub_type=(16, "<u2"), sub_task=(18, "<u2"), ffts=(20, "<u2"), thread=(22, "<u2"),
)  # fmt: skip
# One file, two kinds of record: function 40 is a task, function 41 a block of it.
PMU = _device(
    "ffts_profile.data", 128, "R", STARS_MAGIC,
    **_PMU, ffts=(20, "<u2"), core=(20, "u1"), block_ffts=(21, "u1"), sub_block=(28, "<u2"), block=(30, "<u2"),
)  # fmt: skip
# One file, several kinds: which fields hold depends on `kind` (docs/formats/cann.md 4.5).
TS_TRACK = _device(
    "ts_track.data", 40, "R",
    **_TS, stream=(16, "<u2"), flip=(18, "<u2"), task_type=(20, "<u2"), flip_task=(22, "<u2"),
    index=(16, "<u8"), model=(24, "<u8"), step_stream=(32, "<u2"), step_task=(34, "<u2"), step_tag=(36, "<u2"),
    task=(18, "<u2"), blocks=(20, "<u4"), status=(22, "u1"), copy_status=(20, "u1"),
)  # fmt: skip
# Chips of the next generation write two of these kinds otherwise (docs/formats/cann.md 6.9).
TS_TRACK_NEXT = _device(
    "ts_track.data", 40, "P",
    **_TS, index=(16, "<u8"), model=(24, "<u8"), step_tag=(32, "<u2"), step_stream=(34, "<u2"), step_task=(36, "<u4"),
    task=(16, "<u4"), blocks=(20, "<u4"),
)  # fmt: skip
# Device records of other chips (docs/formats/cann.md 6.7 to 6.9).
HWTS = _device(
    "hwts.data", 64, "R", STARS_MAGIC,
    head=(0, "u1"), type=(1, "u1"), magic=(2, "<u2"), block=(4, "<u2"), task=(6, "<u2"), counter=(8, "<u8"), stream=(16, "<u4"),
)  # fmt: skip
# Kind 4: counters of a block; kinds 2 and 3, its start and end, are as above with the core in `type`.
HWTS_BLOCK = _device(
    "hwts.data", 64, "P", STARS_MAGIC,
    head=(0, "u1"), core_id=(1, "u1"), magic=(2, "<u2"), block=(4, "<u2"), task=(6, "<u2"), stream=(16, "<u4"), cycles=(24, "<u8"),
    counters=(32, "<u4", 8),
)  # fmt: skip
HWTS_VECTOR = Layout("hwts.aiv_data", HWTS.dtype, "P", STARS_MAGIC)
AICORE = _device(
    "aicore.data", 128, "R", STARS_MAGIC,
    head=(0, "u1"), magic=(2, "<u2"), task=(6, "<u2"), cycles=(16, "<u8"), overflow_cycles=(24, "<u8"), counters=(32, "<u8", 8),
    stream=(96, "<u4"),
)  # fmt: skip
# The same file where cores are sampled.
AICORE_SAMPLE = _device(
    "aicore.data", 96, "P",
    mode=(0, "u1"), counters=(8, "<u8", 8), cycles=(72, "<u8"), counter=(80, "<u8"), count=(88, "u1"), core_id=(89, "u1"),
)  # fmt: skip
VECTOR_SAMPLE = Layout("aiVectorCore.data", AICORE_SAMPLE.dtype, "P")
AICORE_SAMPLE_NEXT = _device(
    "aicore.data", 112, "P",
    mode=(0, "u1"), counters=(8, "<u8", 10), cycles=(88, "<u8"), counter=(96, "<u8"), count=(104, "u1"), core_id=(105, "u1"),
)  # fmt: skip
AI_VECTOR_CORE = Layout("aiVectorCore.data", AICORE.dtype, "P", STARS_MAGIC)
TS_TRACK_VECTOR = Layout("ts_track.aiv_data", TS_TRACK.dtype, "P")
# Records with their own size at the head; several kinds lie in one file.
TIMELINE = _device(
    "ts_track.data", 32, "S",
    mode=(0, "u1"), kind=(1, "u1"), size=(2, "<u2"), task_type=(8, "<u2"), state=(10, "<u2"), stream=(12, "<u2"), task=(14, "<u2"),
    counter=(16, "<u8"), thread=(24, "<u4"), device=(28, "<u4"),
)  # fmt: skip
EVENT_COUNTER = _device(
    "aicore.data", 112, "S",
    mode=(0, "u1"), kind=(1, "u1"), size=(2, "<u2"), task_type=(8, "<u2"), stream=(10, "<u2"), task=(12, "<u2"),
    overflow=(14, "<u2"), overflow_cycles=(16, "<u8"), counters=(24, "<u8", 8), cycles=(88, "<u8"), counter=(96, "<u8"),
    block_num=(104, "<u2"),
)  # fmt: skip
STARS_32 = _device(
    "stars_soc.data", 32, "S", STARS_MAGIC,
    head=(0, "<u2"), magic=(2, "<u2"), task=(4, "<u4"), counter=(8, "<u8"), fusion=(16, "<u2"), accelerator=(18, "<u2"),
)  # fmt: skip
STARS_BLOCK = _device(
    "stars_block.data", 32, "S", STARS_MAGIC,
    head=(0, "<u2"), magic=(2, "<u2"), task=(4, "<u4"), counter=(8, "<u8"), context_type=(16, "u1"), flags=(17, "u1"),
    core=(20, "u1"), core_id=(21, "u1"), block=(26, "<u2"),
)  # fmt: skip
PMU_128 = _device(
    "ffts_profile.data", 128, "S", STARS_MAGIC,
    head=(0, "<u2"), magic=(2, "<u2"), task=(4, "<u4"), cycles=(8, "<u8"), context_type=(16, "u1"), flags=(17, "u1"),
    context=(18, "<u2"), core=(20, "u1"), core_id=(21, "u1"), thread=(22, "<u2"), sub_block=(24, "<u2"), block=(26, "<u2"),
    counters=(32, "<u8", 10), start=(112, "<u8"), end=(120, "<u8"),
)  # fmt: skip
TRAINING_TRACE = _device("training_trace", 20, "R", tag=(0, "<u8"), task=(8, "<u2"), stream=(10, "<u2"), counter=(12, "<u8"))

LPM_INFO = _device("lpmInfoConv.data", 888, "R", count=(0, "<u4"), kind=(4, "<u4"), points=(8, LPM_POINT, 55))
LPM_FREQ = _device("lpmFreqConv.data", 888, "S", count=(0, "<u4"), kind=(4, "<u4"), points=(8, LPM_POINT, 55))
AICPU = Layout("aicpu.data", _struct(256, **_HEAD, stream=(24, "<u2"), task=(26, "<u2"), **_AICPU_TIMES), "S", HOST_MAGIC)
AICPU_DP = Layout(
    "aicpu.data",
    _struct(256, **_HEAD, action=(24, "S16"), source=(40, "S64"), index=(104, "<u8"), size=(112, "<u8")),
    "P",
    HOST_MAGIC,
)
AICPU_MODEL = Layout(
    "aicpu.data", _struct(256, **_HEAD, index=(24, "<u8"), model=(32, "<u4"), tag=(36, "<u2"), event=(40, "<u8")), "P", HOST_MAGIC
)
AICPU_MIND_DATA = Layout(
    "aicpu.data", _struct(256, **_HEAD, tag=(24, "<u4"), queue=(32, "<u8"), begin=(40, "<u8"), finish=(48, "<u8")), "P", HOST_MAGIC
)
# The older AI CPU record: the same list of times, 24 bytes nearer to the start (docs/formats/cann.md 4.7).
AICPU_OLD = _device(
    "DATA_PREPROCESS.AICPU", 128, "P", HOST_MAGIC,
    magic=(0, "<u2"), tag=(2, "<u2"), stream=(4, "<u2"), task=(6, "<u2"),
    **{name: (spec[0] - 24, *spec[1:]) for name, spec in _AICPU_TIMES.items()},
)  # fmt: skip

# Sampled device records (docs/formats/cann.md 5).
HBM = _device("hbm.data", 24, "S", time_us=(0, "<u8"), count=(8, "<u8"), event=(16, "<u4"), instance=(20, "<u4"))
HBM_2 = _device("hbm.data", 32, "P", event=(8, "<u4"), instance=(12, "<u4"), count=(16, "<u8"), time_us=(24, "<u8"))
LLC = _device("llc.data", 24, "P", time_us=(0, "<u8"), count=(8, "<u8"), event=(16, "<u4"), instance=(20, "<u4"))
LLC_2 = _device("llc.data", 24, "P", count=(4, "<u4"), event=(8, "<u4"), instance=(12, "<u4"), time_us=(16, "<u8"))
DDR = _device("ddr.data", 20, "P", time_us=(0, "<u4"), count=(4, "<u4"), event=(8, "<u4"), instance=(12, "<u4"), master=(16, "<u4"))
NPU_MEM = _device("npu_mem.data", 32, "S", time_us=(0, "<u4"), event=(4, "<u4"), ddr=(16, "<u8"), hbm=(24, "<u8"))
NPU_MEM_APP = Layout("npu_mem.app", NPU_MEM.dtype, "S")
NPU_MEM_2 = _device("npu_mem.data", 32, "P", event=(4, "<u4"), time_us=(8, "<u8"), ddr=(16, "<u8"), hbm=(24, "<u8"))
NPU_MEM_APP_2 = Layout("npu_mem.app", NPU_MEM_2.dtype, "P")
NPU_MODULE_MEM = _device("npu_module_mem.data", 24, "S", module=(0, "<u4"), counter=(8, "<u8"), bytes=(16, "<u8"))
L2_CACHE = _device("l2_cache.data", 72, "P", task_type=(0, "<u2"), stream=(2, "<u2"), task=(4, "<u2"), events=(8, "<u8", 8))
SOC_PMU = _device(
    "socpmu.data", 80, "P",
    task_type=(8, "<u2"), stream=(10, "<u2"), task=(12, "<u2"), data_type=(14, "<u2"), events=(16, "<u8", 8),
)  # fmt: skip
SOC_PMU_NEXT = _device(
    "socpmu.data", 80, "P",
    data_type=(6, "<u2"), task_type=(8, "<u2"), stream=(10, "<u2"), task=(12, "<u4"), events=(16, "<u8", 8),
)  # fmt: skip
QOS = _device("qos.data", 64, "P", counter=(16, "<u8"), bandwidth=(24, "<u4", 10))
# One file, several kinds: which fields hold depends on the function in `head` (docs/formats/cann.md 5).
STARS_SOC_PROFILE = _device(
    "stars_soc_profile.data", 64, "P", STARS_MAGIC, **_STARS, instance=(18, "<u2"), first=(32, "<u8"), second=(40, "<u8"),
    third=(48, "<u8"), fourth=(56, "<u8"), bandwidth=(24, "<u4", 10), levels=(32, "<u2"), sizes=(32, "<u4", 8),
    low_power=(24, "<u2", 20), die_rx=(28, "<u4", 4), die_tx=(48, "<u4", 4), die_write=(16, "<u8"), die_read=(24, "<u8"),
)  # fmt: skip
PCIE = _device("pcie.data", 96, "P", counter=(0, "<u8"), device=(8, "<u4"), values=(12, "<u4", 21))


# Host records of 2021 and 2022: a magic and a tag, no level (docs/formats/cann.md 6.11). Names stand in the record or are hashes.
def _old(file: str, size: int, evidence: str, /, **fields: Any) -> Layout:
    return Layout(file, _struct(size, magic=(0, "<u2"), tag=(2, "<u2"), **fields), evidence, HOST_MAGIC)


OLD_TASK_DESC = _old(
    "Framework.task_desc_info", 256, "P",
    core=(4, "<u4"), name_kind=(8, "u1"), name=(16, "S120"), name_hash=(16, "<u8"), type_kind=(136, "u1"), op_type=(144, "S56"),
    type_hash=(144, "<u8"), index=(200, "<u8"), stamp=(208, "<u8"), block_num=(220, "<u4"), model=(224, "<u4"),
    stream=(228, "<u4"), task=(232, "<u2"), batch=(234, "<u2"), tid=(236, "<u4"),
)  # fmt: skip
OLD_TENSOR_DATA = _old(
    "Framework.tensor_data_info", 256, "R",
    model=(4, "<u4"), index=(8, "<u8"), stream=(16, "<u4"), task=(20, "<u2"), batch=(22, "<u2"), count=(24, "<u4"),
    tensors=(28, TENSOR, 5), stamp=(248, "<u8"),
)  # fmt: skip
OLD_TASK_TRACK = _old(
    "Runtime.task_track", 64, "P",
    tid=(4, "<u4"), stamp=(8, "<u8"), task_type=(16, "S32"), task=(48, "<u2"), batch=(50, "<u2"), stream=(52, "<u2"),
)  # fmt: skip
OLD_RUNTIME_API = _old("Runtime.api", 256, "P", tid=(4, "<u4"), begin=(8, "<u8"), end=(16, "<u8"), name=(32, "S64"))
OLD_ACL_API = _old(
    "AclModule.acl_op",
    128,
    "P",
    type=(4, "<u4"),
    begin=(8, "<u8"),
    end=(16, "<u8"),
    pid=(24, "<u4"),
    tid=(28, "<u4"),
    name=(32, "S64"),
)
OLD_STEP_INFO = _old(
    "Framework.step_info", 64, "R",
    model=(4, "<u4"), stream=(8, "<u4"), task=(12, "<u2"), batch=(14, "<u2"), stamp=(16, "<u8"), index=(24, "<u8"),
    tid=(32, "<u4"), step_tag=(36, "u1"),
)  # fmt: skip
OLD_ID_MAP = _old(
    "Framework.id_map_info", 32, "R", graph=(4, "<u4"), model=(8, "<u4"), session=(12, "<u4"), stamp=(16, "<u8"), mode=(24, "<u2")
)
OLD_HOST_LAYOUTS = (
    OLD_TASK_DESC, OLD_TENSOR_DATA, OLD_TASK_TRACK, OLD_RUNTIME_API, OLD_ACL_API, OLD_STEP_INFO, OLD_ID_MAP,
)  # fmt: skip

# Layouts of files that other chips fill otherwise (docs/formats/cann.md 6).
LAYOUTS_OF_OTHER_CHIPS: tuple[Layout, ...] = (
    TASK_TRACK_UNIQUE, TASK_TRACK_V2_UNIQUE, TS_TRACK_NEXT, SOC_PMU_NEXT, AICORE_SAMPLE, VECTOR_SAMPLE, AICORE_SAMPLE_NEXT,
    HWTS_BLOCK, TIMELINE, EVENT_COUNTER, STARS_32, PMU_128,
)  # fmt: skip

LAYOUTS: tuple[Layout, ...] = (
    API_EVENT, NODE_BASIC_INFO, NODE_ATTR_INFO, TASK_TRACK, TASK_TRACK_V2, MEMCPY_INFO, EXPAND_STREAM_SPEC, CAPTURE_STREAM_INFO,
    HCCL_OP_INFO,
    TENSOR_INFO, CONTEXT_ID_INFO, FUSION_OP_INFO, TASK_MEMORY_INFO, STATIC_OP_MEM, HCCL_INFO, MC2_COMM_INFO, MULTI_THREAD,
    GRAPH_ID_MAP, LOGIC_STREAM_INFO, MSPROFTX, STARS, PMU, TS_TRACK, LPM_INFO, LPM_FREQ, AICPU, AICPU_DP, AICPU_MODEL,
    AICPU_MIND_DATA, AICPU_OLD, HBM, HBM_2, LLC, LLC_2, DDR, NPU_MEM, NPU_MEM_APP, NPU_MEM_2, NPU_MEM_APP_2, NPU_MODULE_MEM,
    L2_CACHE, SOC_PMU, QOS, STARS_SOC_PROFILE, PCIE, HWTS, HWTS_VECTOR, AICORE, AI_VECTOR_CORE, TS_TRACK_VECTOR, STARS_BLOCK,
    TRAINING_TRACE,
)  # fmt: skip

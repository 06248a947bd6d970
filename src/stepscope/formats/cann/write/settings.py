# SPDX-License-Identifier: Apache-2.0
"""The settings files of a raw folder: what was collected, on which machine, by which clocks (docs/formats/cann.md 1.1 to 1.4)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from stepscope.formats.cann.chips import CHIPS
from stepscope.formats.cann.clock import CounterClock, device_clock, host_clock, sampled_zero_ns
from stepscope.formats.cann.write.hash import text_hash

# Events counted by the eight counters of a core, per set of metrics: of AI cores, of vector cores (docs/formats/cann.md 4.6).
METRIC_EVENTS: Mapping[str, tuple[str, str]] = {
    "PipeUtilization": ("0x416,0x417,0x9,0x302,0xc,0x303,0x54,0x55", "0x8,0xa,0x9,0xb,0xc,0xd,0x54,0x55"),
    "ArithmeticUtilization": ("0x49,0x4a,0x4b,0x4c,0x4d,0x4e,0x4f",) * 2,
    "Memory": ("0x15,0x16,0x31,0x32,0xf,0x10,0x12,0x13",) * 2,
    "MemoryL0": ("0x1b,0x1c,0x21,0x22,0x27,0x28,0x29,0x2a",) * 2,
    "MemoryUB": ("0x37,0x38,0x43,0x44",) * 2,
    "ResourceConflictRatio": ("0x64,0x65,0x66",) * 2,
    "L2Cache": ("0x500,0x502,0x504,0x506,0x508,0x50a",) * 2,
    "MemoryAccess": ("0x32,0x3e,0x206,0x20c,0x50c,0x50d,0x50e,0x3d",) * 2,
}
_AI_CORE_NAMES = {"PipeUtilization": "PipeUtilizationExct"}  # the set that AI cores have instead
# Chips with one kind of core, and the 950 (docs/formats/cann.md 6.10).
_OLDER_EVENTS: Mapping[str, tuple[str, str]] = {
    "PipeUtilization": ("0x8,0xa,0x9,0xb,0xc,0xd,0x54,0x55",) * 2,
    "ArithmeticUtilization": ("0x49,0x4a,0x4b,0x4c,0x4d,0x4e,0x4f",) * 2,
    "Memory": ("0x15,0x16,0x31,0x32,0xf,0x10,0x12,0x13",) * 2,
    "MemoryL0": ("0x1b,0x1c,0x21,0x22,0x27,0x28,0x29,0x2a",) * 2,
    "MemoryUB": ("0x10,0x13,0x37,0x38,0x3d,0x3e,0x43,0x44",) * 2,
    "ResourceConflictRatio": ("0x64,0x65,0x66",) * 2,
}
_NEXT_EVENTS: Mapping[str, tuple[str, str]] = {
    "PipeUtilization": ("0x501,0x301,0x1,0x701,0x202,0x203,0x34,0x35,0x714",) * 2,
    "ArithmeticUtilization": ("0x323,0x324",) * 2,
    "Memory": ("0x422,0x423,0x56f,0x571,0x570,0x572,0x707,0x709",) * 2,
    "MemoryL0": ("0x304,0x703,0x306,0x705,0x712,0x30a,0x308",) * 2,
    "MemoryUB": ("0x3,0x5,0x70c,0x206,0x204,0x571,0x572",) * 2,
    "ResourceConflictRatio": ("0x540,0x556,0x502,0x528",) * 2,
    "L2Cache": ("0x424,0x425,0x426,0x42a,0x42b,0x42c",) * 2,
}


def metric_events(platform: int) -> Mapping[str, tuple[str, str]]:
    """Lists of events per set of metrics, of AI cores and of vector cores, that a chip's collector sets."""
    chip = CHIPS.get(platform)
    if chip is not None and chip.unique_ids:
        return _NEXT_EVENTS
    return _OLDER_EVENTS if chip is not None and chip.counters in ("aicore", "event_counter") else METRIC_EVENTS


A2 = 5  # platform of the Atlas A2


@dataclass(frozen=True)
class Chip:
    """What info.json says about a device; the default is an Atlas A2."""

    platform: int = A2
    counter_mhz: float = 50.0  # of the device counter that stamps its records
    core_mhz: int = 1650
    ai_cores: int = 20
    vector_cores: int = 40
    name: str = ""  # shown instead of the platform's


@dataclass(frozen=True)
class Session:
    """One recording of one process."""

    pid: int
    started_ns: int  # since 1970
    mono_ns: int  # of the monotonic clock at that moment
    pid_name: str = "python"
    rank: int | None = None
    devices: tuple[int, ...] = (0,)
    level: int = 1
    metrics: str = "PipeUtilization"
    host_mhz: float | None = None  # None: the host stamps with monotonic nanoseconds, as x86 does
    version: str = "1.0"  # "2.0" changes some sampled records
    hostname: str = "localhost"
    system: str = "Linux"
    cpus: int = 1
    memory_kib: int = 0
    chip: Chip = Chip()
    switches: Mapping[str, Any] = field(default_factory=dict)  # further keys of sample.json

    @classmethod
    def now(cls, pid: int, **settings: Any) -> Session:
        """A session that begins at this moment, on the raw monotonic clock."""
        return cls(pid, time.time_ns(), time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW), **settings)

    def folder_name(self, number: int = 1) -> str:
        """`PROF_<number>_<date and time>_<pid><letters>`; the letters keep two sessions of one moment apart."""
        seconds, rest = divmod(self.started_ns, 1_000_000_000)
        stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{rest // 1_000_000:03d}"
        mixed = text_hash(f"{self.hostname}/{self.pid}/{self.started_ns}/{self.rank}/{number}")
        letters = "".join(chr(ord("A") + mixed // 18**at % 18) for at in range(8))
        return f"PROF_{number:06d}_{stamp}_{self.pid % 100_000_000:08d}{letters}"

    def clock(self, device: int | None = None) -> CounterClock:
        """The clock by which a reader of these settings will read the stamps."""
        if device is None:
            return host_clock(_info(self, None), _start(self), _host_log(self))[0]
        return device_clock(_info(self, device), _start(self), _host_log(self), _device_log(self))[0]

    @property
    def sampled_zero_ns(self) -> int:
        """Epoch nanoseconds at microsecond 0 of sampled data."""
        return sampled_zero_ns(_host_log(self), _start(self))


def start_files(session: Session, device: int | None) -> dict[str, bytes]:
    """Contents of the files that are there from the start, by name."""
    tail = "" if device is None else f".{device}"
    section = "Host" if device is None else f"Device{device}"
    files = {
        f"info.json{tail}": orjson.dumps(_info(session, device)),
        "sample.json": orjson.dumps(_sample(session, device)),
        f"start_info{tail}": orjson.dumps(_start(session)),
        f"host_start.log{tail}": f"[{section}]\n{_log_text(_host_log(session))}".encode(),
    }
    if device is not None:
        files[f"dev_start.log{tail}"] = _log_text(_device_log(session)).encode()
    return files


def end_file(session: Session, device: int | None, end_ns: int) -> tuple[str, bytes]:
    """Name and contents of `end_info`."""
    start = _start(session)
    microseconds = end_ns // 1000
    passed_ns = microseconds * 1000 - int(start["collectionTimeBegin"]) * 1000
    end = {
        "clockMonotonicRaw": str(int(start["clockMonotonicRaw"]) + passed_ns),
        "collectionTimeEnd": str(microseconds),
        "collectionTimeBegin": "",
        "collectionDateEnd": _date(microseconds),
        "collectionDateBegin": "",
    }
    return "end_info" if device is None else f"end_info.{device}", orjson.dumps(end)


def _start(session: Session) -> dict[str, str]:
    # Microseconds since 1970 and nanoseconds of the monotonic clock: cut both by the same so that no time is lost.
    cut = session.started_ns % 1000
    return {
        "clockMonotonicRaw": str(session.mono_ns - cut),
        "collectionTimeEnd": "",
        "collectionTimeBegin": str(session.started_ns // 1000),
        "collectionDateEnd": "",
        "collectionDateBegin": _date(session.started_ns // 1000),
    }


def _date(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds // 1_000_000).strftime("%Y-%m-%d %H:%M:%S") + f".{microseconds % 1_000_000:06d}"


def _host_log(session: Session) -> dict[str, int]:
    ticks = session.mono_ns if session.host_mhz is None else round(session.mono_ns * session.host_mhz / 1000)
    return {"clock_monotonic_raw": session.mono_ns, "cntvct": ticks, "cntvct_diff": 0}


def _device_log(session: Session) -> dict[str, int]:
    ticks = round(session.mono_ns * session.chip.counter_mhz / 1000)
    return {"clock_monotonic_raw": session.mono_ns, "cntvct": ticks}


def _log_text(log: Mapping[str, int]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in log.items())


def _info(session: Session, device: int | None) -> dict[str, Any]:
    """All keys without which the reference parser refuses a folder, and those that tables need."""
    frequency = "" if session.host_mhz is None else f"{session.host_mhz:.6f}"
    cpu = {"Id": 0, "Name": "", "Type": "", "Frequency": frequency, "Logical_CPU_Count": str(session.cpus)}
    return {
        "platform_version": str(session.chip.platform),
        "version": session.version,
        "drvVersion": 467992,  # from 467473 on, parsers export whole sessions and count task batches
        "pid": str(session.pid),
        "pid_name": session.pid_name,
        "devices": "" if device is None else str(device),
        "rank_id": -1 if session.rank is None else session.rank,
        "hostname": session.hostname,
        "hostUid": str(text_hash(session.hostname)),
        "OS": session.system,
        "hwtype": "x86_64" if session.host_mhz is None else "aarch64",
        "jobInfo": "NA",
        "upTime": f"{session.mono_ns / 1e9:.2f} 0.00",
        "memoryTotal": session.memory_kib,
        "cpuNums": session.cpus,
        "cpuCores": 1,
        "sysClockFreq": 100,
        "netCard": [{"speed": 0, "netCardName": "lo"}],
        "netCardNums": 1,
        "platform": "",
        "CPU": [cpu],
        "DeviceInfo": [] if device is None else [_device_info(session.chip, device)],
    }


def _device_info(chip: Chip, device: int) -> dict[str, Any]:
    return {
        "id": device,
        "env_type": 3,
        "hwts_frequency": f"{chip.counter_mhz:.6f}",
        "aic_frequency": str(chip.core_mhz),
        "aiv_frequency": str(chip.core_mhz),
        "ai_core_num": chip.ai_cores,
        "ai_core_id": 0,
        "aiv_num": chip.vector_cores,
        "ai_cpu": "2,3,4,5,6,7",
        "ai_cpu_core_id": 2,
        "ai_cpu_core_num": 6,
        "aicpu_occupy_bitmap": 252,
        "ctrl_cpu": "0",
        "ctrl_cpu_id": "ARMv8_Cortex_A55",
        "ctrl_cpu_core_num": 1,
        "ctrl_cpu_endian_little": 1,
        "ts_cpu_core_num": 0,
        **({"name": chip.name} if chip.name else {}),
    }


def _sample(session: Session, device: int | None) -> dict[str, Any]:
    cube, vector = metric_events(session.chip.platform).get(session.metrics, ("", ""))
    names = _AI_CORE_NAMES if cube != vector else {}
    counted = "on" if cube else "off"
    return {
        "ai_core_profiling": counted,
        "ai_core_profiling_mode": "task-based",
        "ai_core_metrics": names.get(session.metrics, session.metrics) if cube else "",
        "ai_core_profiling_events": cube,
        "ai_core_profiling_metrics": "",
        "aiv_profiling": counted,
        "aiv_profiling_mode": "task-based",
        "aiv_metrics": session.metrics if vector else "",
        "aiv_profiling_events": vector,
        "aiv_profiling_metrics": "",
        "aicore_sampling_interval": 10,
        "aiv_sampling_interval": 10,
        "aicScale": "all",
        "prof_level": f"level{session.level}",
        "acl": "on",
        "runtimeTrace": "on",
        "taskTrace": "on",
        "taskTime": "on" if session.level else "l0",
        "stars_acsq_task": "on",
        "ts_keypoint": "on",
        "ts_memcpy": "on",
        "ai_core_lpm": "on",
        "llc_profiling": "read",
        "llc_profiling_events": "read",
        "llc_interval": 20,
        "hbm_profiling_events": "read,write",
        "hbmInterval": 20,
        "ddr_profiling_events": "",
        "ddr_interval": 20,
        "ddr_master_id": 0,
        "l2CacheTaskProfilingEvents": "0xF6,0xFB,0xFC,0xBF,0x90,0x91,0x9C,0x9D",
        "qosEvents": "",
        "instrProfilingFreq": 1000,
        "hardware_mem_sampling_interval": 20000,
        "profiling_mode": "",
        "profiling_period": -1,
        "isCancel": False,
        "host_sys": "",
        "host_sys_pid": session.pid,
        "msprofBinPid": session.pid,
        "app": session.pid_name,
        "app_dir": "",
        "app_parameters": "",
        "hostProfiling": device is None,
        "devices": "64" if device is None else str(device),  # 64 stands for the host
        "job_id": "64" if device is None else str(device),
        "result_dir": "",
        **session.switches,
    }

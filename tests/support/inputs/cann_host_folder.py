# SPDX-License-Identifier: Apache-2.0
"""A raw host folder from hand-made records: one tick is one nanosecond since 1970."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from stepscope.formats import NONE32
from stepscope.formats.cann.folder import open_prof
from stepscope.formats.cann.host.side import HostSide, read_host
from stepscope.formats.cann.layouts import API_EVENT, EVENT_END, HOST_MAGIC, TASK_TRACK, Layout

ACL, MODEL, NODE, HCCL, RUNTIME = 20000, 15000, 10000, 5500, 5000
LAUNCH, STEP_INFO, MASTER = 5, 0x10005, 0x10001
TYPES = {
    (ACL, 0x50000): "aclnnAdd", (ACL, 0x30001): "aclrtMemcpy", (MODEL, 1): "ModelExecute", (MODEL, 2): "ModelLoad",
    (NODE, LAUNCH): "launch", (NODE, STEP_INFO): "step_info", (HCCL, MASTER): "master", (HCCL, 0x10002): "slave",
    (RUNTIME, 0): "KERNEL_AICORE", (RUNTIME, 1): "KERNEL_AICPU", (RUNTIME, 5): "MEMCPY_ASYNC", (RUNTIME, 14): "NOTIFY_WAIT",
    (RUNTIME, 2): "EVENT_RECORD", (RUNTIME, 52): "FFTS_PLUS", (RUNTIME, 66): "KERNEL_AIVEC", (RUNTIME, 98): "FLIP_TASK",
    (RUNTIME, 108): "KERNEL_MIX_AIC", (RUNTIME, 1003): "KernelLaunch",
}  # fmt: skip


class HostFolder:
    """Collects records and reads them back through `read_host`."""

    def __init__(self, root: Path, level: str = "level1") -> None:
        self._host = root / "PROF_000001_20260101000000000_A" / "host"
        (self._host / "data").mkdir(parents=True)
        self._texts: dict[str, int] = {}
        info = {"platform_version": "5", "pid": "7", "CPU": [{"Frequency": ""}], "DeviceInfo": [], "drvVersion": 467992}
        settings = {
            "info.json": info,
            "sample.json": {"prof_level": level},
            "start_info": {"clockMonotonicRaw": "0", "collectionTimeBegin": "0"},
            "end_info": {},
        }
        for name, value in settings.items():
            (self._host / name).write_text(json.dumps(value))
        (self._host / "host_start.log").write_text("[Host]\nclock_monotonic_raw: 0\ncntvct: 0\n")

    def text(self, text: str) -> int:
        return self._texts.setdefault(text, 1000 + len(self._texts))

    def add(self, layout: Layout, *records: dict[str, Any], aging: bool = True) -> HostFolder:
        rows = np.zeros(len(records), layout.dtype)
        rows["magic"] = HOST_MAGIC
        for number, record in enumerate(records):
            for name, value in record.items():
                rows[name][number] = self.text(value) if isinstance(value, str) else value
        path = self._host / "data" / f"{'aging' if aging else 'unaging'}.{layout.file}.slice_0"
        with path.open("ab") as file:
            file.write(rows.tobytes())
        return self

    def apis(self, *calls: tuple[int, int, int, int, Any], tid: int = 1) -> HostFolder:
        """(level, type, begin, end, item)"""
        fields = ("level", "type", "begin", "end", "item")
        return self.add(API_EVENT, *({**dict(zip(fields, call, strict=True)), "tid": tid} for call in calls))

    def event(self, level: int, kind: int, stamp: int, request: int, item: int, tid: int = 1) -> HostFolder:
        return self.add(
            API_EVENT,
            {"level": level, "type": kind, "begin": stamp, "end": EVENT_END, "request": request, "item": item, "tid": tid},
        )

    def tasks(self, *tasks: tuple[int, int, int], stream: int = 3, tid: int = 1, kernel: Any = 0) -> HostFolder:
        """(stamp, task type, task number)"""
        return self.add(
            TASK_TRACK,
            *(
                {"stamp": stamp, "task_type": kind, "task": task, "stream": stream, "tid": tid, "kernel": kernel}
                for stamp, kind, task in tasks
            ),
        )

    def flip(self, stamp: int, *, task: int = 0, number: int = 1, stream: int = 3) -> HostFolder:
        return self.add(TASK_TRACK, {"stamp": stamp, "task_type": 98, "task": task, "flip": number, "stream": stream, "tid": 1})

    def read(self) -> HostSide:
        data = self._host / "data"
        (data / "unaging.additional.hash_dic.slice_0").write_text("".join(f"{key}:{text}\n" for text, key in self._texts.items()))
        types = "".join(f"{level}_{kind}:{name}\n" for (level, kind), name in TYPES.items())
        (data / "unaging.additional.type_info_dic.slice_0").write_text(types)
        return read_host(open_prof(self._host.parent))


def tensor(kind: int, shape: tuple[int, ...], dtype: int = 1, form: int = 2) -> tuple[int, int, int, list[int]]:
    return kind, form, dtype, [*shape, *[0] * (8 - len(shape))]


NO_CONTEXT = NONE32

# SPDX-License-Identifier: Apache-2.0
"""Records of the simulated device as structured arrays: one row per task, transfer, memory event or runtime call.

The layouts are those of native/simnpu/records.h, which says what each field means. Times are nanoseconds of
CLOCK_MONOTONIC_RAW; 0 means that the event did not happen.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.simnpu.device import library_path

_ABI = 2

TASK = np.dtype(
    [
        ("enqueue_start", "<i8"),
        ("enqueue_end", "<i8"),
        ("dequeue_start", "<i8"),
        ("dequeue_end", "<i8"),
        ("launch_start", "<i8"),
        ("launch_end", "<i8"),
        ("start", "<i8"),
        ("end", "<i8"),
        ("connection", "<u8"),
        ("bytes", "<u8"),
        ("description", "<u4"),
        ("task", "<u4"),
        ("host_thread", "<u4"),
        ("launch_thread", "<u4"),
        ("device", "<i4"),
        ("stream", "<i4"),
        ("event", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("calls", "<u2"),
        ("modelled_ns", "<i8"),
        ("correlation", "<u8"),
    ]
)
MEMORY = np.dtype(
    [
        ("time", "<i8"),
        ("address", "<u8"),
        ("size", "<i8"),
        ("allocated", "<i8"),
        ("reserved", "<i8"),
        ("active", "<i8"),
        ("stream", "<u8"),
        ("thread", "<u4"),
        ("device", "<i2"),
        ("kind", "u1"),
        ("component", "u1"),
    ]
)
TRANSFER = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("connection", "<u8"),
        ("bytes", "<u8"),
        ("notify", "<u8"),
        ("task", "<u4"),
        ("device", "<i4"),
        ("stream", "<i4"),
        ("src_rank", "<i4"),
        ("dst_rank", "<i4"),
        ("plane", "<u2"),
        ("kind", "u1"),
        ("transport", "u1"),
        ("link", "u1"),
        ("data_type", "u1"),
        ("reduce_op", "u1"),
        ("flags", "u1"),
        ("reserved", "<u4"),
    ]
)
CALL = np.dtype([("start", "<i8"), ("end", "<i8"), ("value", "<u8"), ("thread", "<u4"), ("call", "<u2"), ("device", "<i2")])

KERNEL, COPY_H2D, COPY_D2H, COPY_D2D, EVENT_RECORD, EVENT_WAIT, COLLECTIVE, MARK = range(8)
FAILED, AWAITED = 1, 2
TRANSFER_NAMES = ("Memcpy", "Reduce_Inline", "Notify_Wait", "Notify_Record")
MASTER, MODELLED = 1, 2
CALL_NAMES = {
    1: "aclrtSynchronizeStream",
    2: "aclrtSynchronizeDevice",
    3: "aclrtSynchronizeEvent",
    4: "aclrtMalloc",
    5: "aclrtFree",
    6: "aclrtMallocHost",
    7: "aclrtFreeHost",
    8: "aclrtCreateStream",
}
_ROOM = 65536


class Records:
    """Switches recording on and off, and reads what was recorded since the last read."""

    def __init__(self) -> None:
        library = ctypes.CDLL(str(library_path()))
        if library.simnpu_abi() != _ABI:
            raise RuntimeError("the library of the simulated NPU has another version")
        library.simnpu_description.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
        library.simnpu_description.restype = ctypes.c_size_t
        library.simnpu_descriptions.restype = ctypes.c_uint32
        library.simnpu_lost.restype = ctypes.c_uint64
        for kind in ("tasks", "transfers", "memory", "calls"):
            drain = getattr(library, f"simnpu_drain_{kind}")
            drain.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
            drain.restype = ctypes.c_size_t
        self._library = library

    def start(self, *, attributes: bool = False) -> None:
        """Record from now on; earlier records that were not read are dropped.

        Args:
            attributes: describe each number that an operator is called with, which costs a description for each.
        """
        self._library.simnpu_record(2 if attributes else 1)

    def stop(self) -> None:
        """Stop recording. Tasks that are still queued are not recorded: synchronise first."""
        self._library.simnpu_record(0)

    def wait_idle(self) -> None:
        """Wait until all queued tasks have run; a fault on the device is left for the script's own next wait."""
        self._library.simnpu_wait_idle()

    def tasks(self) -> npt.NDArray[Any]:
        return _drain(self._library.simnpu_drain_tasks, TASK)

    def transfers(self) -> npt.NDArray[Any]:
        """The link-level tasks of collectives."""
        return _drain(self._library.simnpu_drain_transfers, TRANSFER)

    def memory(self) -> npt.NDArray[Any]:
        return _drain(self._library.simnpu_drain_memory, MEMORY)

    def calls(self) -> npt.NDArray[Any]:
        return _drain(self._library.simnpu_drain_calls, CALL)

    def lost(self) -> int:
        return int(self._library.simnpu_lost())

    def description(self, number: int) -> dict[str, Any]:
        """The description of the kernel or collective with this number: names, core, tensors, or group and algorithm."""
        text = ctypes.create_string_buffer(4096)
        length = self._library.simnpu_description(number, text, len(text))
        if length > len(text):
            text = ctypes.create_string_buffer(length)
            self._library.simnpu_description(number, text, length)
        description: dict[str, Any] = json.loads(text.raw[:length])
        return description

    def descriptions(self) -> dict[int, dict[str, Any]]:
        return {number: self.description(number) for number in range(1, self._library.simnpu_descriptions() + 1)}


def _drain(drain: Any, layout: np.dtype[Any]) -> npt.NDArray[Any]:
    parts = []
    while True:
        part = np.empty(_ROOM, layout)
        count = drain(part.ctypes.data, _ROOM)
        parts.append(part[:count])
        if count < _ROOM:
            return np.concatenate(parts)

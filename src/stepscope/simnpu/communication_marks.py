# SPDX-License-Identifier: Apache-2.0
"""Marks of communication operators, as the hardware's communication library sets them (docs/formats/profiler-api.md 18.3, 18.4)."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.ascend.communication_text import communication_message
from stepscope.formats.cann.write.device import DeviceWriter
from stepscope.simnpu.records import COLLECTIVE

DOMAIN = "communication"
_FIRST = 200_000_000  # above the numbers of the script's own marks; the vendor adds 4,000,000,001 in 32 bits
_RANGE_TAG = 12  # docs/formats/cann.md 4.5
_NO_MODEL = 0xFFFF_FFFF
_OPERATORS = {
    "allReduce": "HcclAllreduce", "reduce": "HcclReduce", "broadcast": "HcclBroadcast", "allGather": "HcclAllGather",
    "reduceScatter": "HcclReduceScatter", "scatter": "HcclScatter", "gather": "HcclGather", "alltoall": "HcclAlltoAll",
    "alltoallv": "HcclAlltoAllV", "send": "HcclSend", "receive": "HcclRecv", "batchSendRecv": "HcclBatchSendRecv",
}  # fmt: skip
_PEERS = {"send": "destination", "receive": "source"}


class CommunicationMarks:
    """Marks the operators of all groups as they end: the device part is written at once, the host part when the capture ends.

    Args:
        describe: gives the device's description of an operator by its number.
        offset_ns: from the clock of the records to Unix time.
    """

    def __init__(self, describe: Callable[[int], dict[str, Any]], offset_ns: int):
        self._describe, self._offset = functools.cache(describe), offset_ns
        self.rows: list[dict[str, Any]] = []  # rows for `DeviceCapture.marks`

    def take(self, tasks: npt.NDArray[Any], transfers: npt.NDArray[Any], writer: Callable[[int], DeviceWriter]) -> None:
        """Mark the operators among these tasks; `writer` gives the records of a device."""
        operators = tasks[tasks["kind"] == COLLECTIVE]
        if not len(operators):
            return
        first = _FIRST + len(self.rows)
        sent = transfers[transfers["dst_rank"] >= 0]  # the others are copies inside the device
        peers = dict(zip(sent["connection"].tolist(), sent["dst_rank"].tolist(), strict=True))
        for number, task in enumerate(operators, first):
            self.rows.append(self._row(number, task, peers.get(int(task["connection"]))))
        for device in np.unique(operators["device"]).tolist():
            chosen = np.flatnonzero(operators["device"] == device)
            sides = np.stack([operators["start"][chosen], operators["end"][chosen]], axis=1).ravel()
            order = np.argsort(sides, kind="stable")
            twice = np.repeat(chosen, 2)[order]
            writer(device).steps(
                index=first + twice, model=_NO_MODEL, stream=operators["stream"][twice], task=operators["task"][twice] & 0xFFFF,
                tag=_RANGE_TAG, at_ns=sides[order] + self._offset,
            )  # fmt: skip

    def _row(self, number: int, task: Any, peer: int | None) -> dict[str, Any]:
        description = self._describe(int(task["description"]))
        kind = str(description.get("type", "")).removeprefix("hcom_").rstrip("_")
        message = communication_message(
            stream=int(task["stream"]),
            count=int(description.get("count", 0)),
            data_type=str(description.get("data_type", "")),
            group=str(description.get("group_name", "")),
            op=_OPERATORS.get(kind, kind),
            **({_PEERS[kind]: peer} if kind in _PEERS else {}),
        )
        # Without a task queue the calling thread puts the operator on its stream.
        call = "enqueue" if task["enqueue_start"] else "launch"
        return {
            "pid": os.getpid(), "tid": int(task["host_thread"]), "mark_id": number,
            "start": int(task[f"{call}_start"]), "end": int(task[f"{call}_end"]),
            "message": message, "domain": DOMAIN, "kind": "start/end",
        }  # fmt: skip

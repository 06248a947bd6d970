# SPDX-License-Identifier: Apache-2.0
"""Launches as host records of a raw folder: calls, descriptions of operators, copies, collectives (docs/formats/cann.md 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats import NONE32
from stepscope.formats.cann.write.folder import ProfWriter
from stepscope.formats.cann.write.host import HostWriter
from stepscope.formats.cann.write.type_names import ACL, COMMUNICATION, LAUNCH, MASTER, NODE, RUNTIME, RUNTIME_CALLS, SLAVE
from stepscope.simnpu.descriptions import AI_CPU, MIX_AIC, MIX_AIV, Descriptions
from stepscope.simnpu.launches import Launches, disjoint
from stepscope.simnpu.records import CALL_NAMES, EVENT_RECORD
from stepscope.simnpu.transfers import Transfers

# Calls of the runtime that launch nothing, below the acl level.
_LOWER_CALLS = {
    1: "StreamSynchronize", 2: "DeviceSynchronize", 3: "EventSynchronize", 4: "DevMalloc", 5: "DevFree", 6: "HostMalloc",
    7: "HostFree", 8: "StreamCreate",
}  # fmt: skip
_COMMUNICATION_TASK = 9  # GE task type of a collective


class HostRecords:
    """Writes the host side of launches; the session's level decides what is written."""

    def __init__(
        self, writer: ProfWriter, host: HostWriter, descriptions: Descriptions, offset_ns: int, *, attributes: bool = False
    ) -> None:
        self._writer, self._host, self._descriptions, self._offset = writer, host, descriptions, offset_ns
        self._attributes = attributes
        self._runtime = writer.session.level >= 2

    def launches(self, launches: Launches, kernels: npt.NDArray[Any]) -> None:
        """Calls and descriptions of everything that was launched; `kernels` are rows of `Descriptions` per launch."""
        self._operators(launches.where(launches.kernels), kernels[launches.kernels])
        copies, events = launches.where(launches.copies), launches.where(launches.events)
        self._acl(copies, self._writer.acl_type("aclrtMemcpyAsync", "ACL_RTS"), "MemcpyAsync")
        self._host.copies(
            tid=copies.tid, at_ns=copies.stamp, bytes=copies.tasks["bytes"], direction=copies.tasks["kind"]
        )  # kinds of copies have the numbers of their directions
        for recorded, call, lower in (
            (True, "aclrtRecordEvent", "EventRecord"),
            (False, "aclrtStreamWaitEvent", "StreamWaitEvent"),
        ):
            chosen = events.where((events.tasks["kind"] == EVENT_RECORD) == recorded)
            self._acl(chosen, self._writer.acl_type(call, "ACL_RTS"), lower)

    def calls(self, calls: npt.NDArray[Any]) -> None:
        """Calls of the runtime that launch nothing, such as waiting or allocating memory."""
        calls = disjoint(calls)
        types = {call: self._writer.acl_type(name, "ACL_RTS") for call, name in CALL_NAMES.items()}
        span: dict[str, Any] = {
            "tid": calls["thread"],
            "start_ns": calls["start"] + self._offset,
            "end_ns": calls["end"] + self._offset,
        }
        self._host.calls(level=ACL, type=_types(calls["call"], types), **span)
        if self._runtime:
            lower = {call: RUNTIME_CALLS[name] for call, name in _LOWER_CALLS.items()}
            self._host.calls(level=RUNTIME, type=_types(calls["call"], lower), **span)

    def _operators(self, launches: Launches, kernels: npt.NDArray[Any]) -> None:
        self._acl(launches, kernels["call"])
        name, described, tid = kernels["name"], launches.described, launches.tid
        self._node(launches, name)
        self._host.operators(
            tid=tid, at_ns=described, name=name, op_type=kernels["type"], task_type=kernels["core"], blocks=kernels["blocks"],
            mix_ratio=kernels["mix_ratio"],
        )  # fmt: skip
        if self._writer.session.level:
            op, tensors = self._descriptions.tensors(launches.tasks["description"])
            self._host.tensors(
                tid=tid, at_ns=described, name=name, op=op, kind=tensors["kind"], format=tensors["format"], dtype=tensors["dtype"],
                shape=tensors["shape"],
            )  # fmt: skip
        if self._attributes:
            has = kernels["attributes"] != 0
            self._host.attributes(tid=tid[has], at_ns=described[has], name=name[has], attributes=kernels["attributes"][has])
        mix = np.isin(kernels["core"], (MIX_AIC, MIX_AIV))
        if mix.any():
            self._host.contexts(tid=tid[mix], at_ns=described[mix], name=name[mix])
        if self._runtime:
            on_cpu = kernels["core"] == AI_CPU
            lower = np.where(on_cpu, RUNTIME_CALLS["CpuKernelLaunch"], RUNTIME_CALLS["KernelLaunchWithHandle"])
            self._lower(launches, lower)

    def _acl(self, launches: Launches, types: Any, lower: str = "") -> None:
        self._host.calls(level=ACL, type=types, tid=launches.tid, start_ns=launches.begin, end_ns=launches.end)
        if lower and self._runtime:
            self._lower(launches, RUNTIME_CALLS[lower])

    def _node(self, launches: Launches, name: npt.NDArray[Any]) -> None:
        self._host.calls(level=NODE, type=LAUNCH, tid=launches.tid, start_ns=launches.begin + 1, end_ns=launches.end - 1, item=name)

    def _lower(self, launches: Launches, types: Any) -> None:
        self._host.calls(level=RUNTIME, type=types, tid=launches.tid, start_ns=launches.described, end_ns=launches.stamp)

    def collectives(self, launches: Launches, kernels: npt.NDArray[Any], transfers: Transfers) -> None:
        """Communication operators: the launch, its description, and a call for each of its transfers."""
        self._acl(launches, kernels["call"])
        name, described, tid = kernels["name"], launches.described, launches.tid
        self._node(launches, name)
        self._host.operators(tid=tid, at_ns=described, name=name, op_type=kernels["type"], task_type=_COMMUNICATION_TASK)
        descriptions = [self._descriptions.description(number) for number in launches.tasks["description"].tolist()]
        ids = self._writer.ids
        groups = ids([str(operator.get("group_name", "")) for operator in descriptions])
        self._host.collectives(
            tid=tid, at_ns=described,
            data_type=np.array([operator.get("data_type_id", 255) for operator in descriptions], np.uint8),
            algorithm=ids([str(operator.get("algorithm", "")) for operator in descriptions]), group=groups,
            count=np.array([operator.get("count", 0) for operator in descriptions], np.uint64),
        )  # fmt: skip
        of, rows = transfers.of, transfers.rows
        names = ids(transfers.names)
        self._host.calls(
            level=COMMUNICATION, type=np.where(rows["flags"] & 1, MASTER, SLAVE), tid=tid[of], start_ns=transfers.begin,
            end_ns=transfers.stamp, item=names,
        )  # fmt: skip
        sizes = np.array([operator.get("rank_size", 1) for operator in descriptions], np.uint32)
        self._host.transfers(
            tid=tid[of], at_ns=transfers.stamp, name=names, group=groups[of], tag=groups[of], local_rank=rows["src_rank"],
            remote_rank=np.where(rows["dst_rank"] < 0, NONE32, rows["dst_rank"]).astype(np.uint32), rank_size=sizes[of],
            plane=rows["plane"], notify=rows["notify"], estimated_us=(rows["end"] - rows["start"]) / 1000, bytes=rows["bytes"],
            reduce_op=_or_none(rows["reduce_op"]), data_type=_or_none(rows["data_type"]), link=rows["link"],
            transport=rows["transport"], stage=0, role=0,
        )  # fmt: skip


def _or_none(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.where(codes == 255, np.uint32(NONE32), codes.astype(np.uint32))


def _types(calls: npt.NDArray[Any], types: dict[int, int]) -> npt.NDArray[Any]:
    table = np.zeros(max(types) + 1, np.uint32)
    table[list(types)] = list(types.values())
    return np.asarray(table[np.minimum(calls, max(types))])

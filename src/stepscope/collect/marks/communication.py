# SPDX-License-Identifier: Apache-2.0
"""One mark per collective or message that Python code starts, in the domain `communication` (docs/formats/profiler-api.md 18.4).

On the CPU the range of a collective lasts until it is complete. Messages, and everything on a device, are queued: their range
is the call, and the device's own records show the rest. What DDP's reducer sends is started from C++ and is not seen here.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from stepscope.collect.guard import quietly
from stepscope.formats.ascend.communication_text import communication_message

DOMAIN = "communication"
# Methods of ProcessGroup: the operator, and which argument holds what is sent (what is received where nothing is sent).
_CALLS = {
    "allreduce": ("Allreduce", 0), "allreduce_coalesced": ("Allreduce", 0), "broadcast": ("Broadcast", 0), "reduce": ("Reduce", 0),
    "allgather": ("AllGather", 1), "allgather_coalesced": ("AllGather", 1), "_allgather_base": ("AllGather", 1),
    "all_gather_single": ("AllGather", 1), "allgather_into_tensor_coalesced": ("AllGather", 1),
    "all_gather_single_coalesced": ("AllGather", 1), "gather": ("Gather", 1), "scatter": ("Scatter", 0),
    "reduce_scatter": ("ReduceScatter", 1), "_reduce_scatter_base": ("ReduceScatter", 1),
    "reduce_scatter_single": ("ReduceScatter", 1), "reduce_scatter_tensor_coalesced": ("ReduceScatter", 1),
    "reduce_scatter_single_coalesced": ("ReduceScatter", 1), "alltoall": ("AlltoAll", 1), "alltoall_base": ("AlltoAll", 1),
    "all_to_all_single": ("AlltoAll", 1), "send": ("Send", 0), "recv": ("Recv", 0),
}  # fmt: skip
_SPLIT = ("alltoall_base", "all_to_all_single")  # sizes may follow the tensors
_PEERS = {"Send": "destination", "Recv": "source"}  # the argument after the tensors


def mark_process_groups(current_log: Callable[[], Any], patch: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
    """Mark the calls of process groups until the capture ends; does nothing unless torch.distributed is loaded."""
    kind = getattr(sys.modules.get("torch._C._distributed_c10d"), "ProcessGroup", None)
    if kind is None:
        return
    for name in _CALLS:
        patch(kind, name, functools.partial(_around, name, current_log))


def _around(name: str, current_log: Callable[[], Any], call: Callable[..., Any]) -> Callable[..., Any]:
    op, place = _CALLS[name]

    @functools.wraps(call)
    def wrapper(self: Any, *arguments: Any, **options: Any) -> Any:
        log = current_log()
        if log is None:
            return call(self, *arguments, **options)
        range_ = _OpenRange()
        uneven = name in _SPLIT and any(arguments[2:4])
        quietly(range_.begin, log, self, f"{op}V" if uneven else op, arguments[place : place + 1], arguments[1:2])
        try:
            work = call(self, *arguments, **options)
        except BaseException:
            range_.end()
            raise
        if not (range_.on_host and quietly(lambda: work.get_future().add_done_callback(range_.end))):
            range_.end()
        return work

    return wrapper


class _OpenRange:
    """The range of one call; the thread that moves the bytes may call `end`."""

    def __init__(self) -> None:
        self._log: Any = None
        self._number = 0
        self.on_host = False

    def begin(self, log: Any, group: Any, op: str, sent: Any, peer: Any) -> None:
        tensors = list(_tensors(sent))
        if not tensors:
            return
        device = tensors[0].device
        if device.type == "npu":
            return  # the simulated device marks its operators itself, including those started from C++
        self.on_host = device.type == "cpu"
        backend = group._get_backend(device)
        message = communication_message(
            stream=-1,  # a CPU has no streams, and other devices do not report theirs
            count=sum(tensor.numel() for tensor in tensors),
            data_type=str(tensors[0].dtype).removeprefix("torch."),
            group=group.group_name,
            op=f"{backend.name().capitalize()}{op}",
            **({_PEERS[op]: int(peer[0])} if op in _PEERS else {}),
        )
        self._number = log.begin(message, None, DOMAIN)
        self._log = log

    def end(self, _future: Any = None) -> None:
        if self._number:
            self._log.end(self._number, DOMAIN)


def _tensors(arguments: Any) -> Any:
    for item in arguments:
        if isinstance(item, (list, tuple)):
            yield from _tensors(item)
        else:
            yield item

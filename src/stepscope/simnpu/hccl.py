# SPDX-License-Identifier: Apache-2.0
"""`hccl` for `torch.distributed`: how the processes of a group find each other.

Imported only by `device.load_library`, once torch and the library are loaded. native/simnpu/communication/hccl.cpp handles
the tensors; gloo moves the bytes.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import socket
import time
from typing import Any

import torch
import torch.distributed as dist

_ops = torch.ops.stepscope_npu
_names: dict[str, str] = {}  # of communicators, by the name of their group


def register() -> None:
    """Make `hccl` the backend of torch.distributed for npu tensors."""
    dist.Backend.register_backend("hccl", _new_backend, extended_api=True, devices=["npu"])
    torch._C._distributed_c10d.Backend.get_hccl_comm_name = _communicator_name
    torch._C._distributed_c10d.Backend._get_stream_id = _stream_id
    os.register_at_fork(after_in_child=_keep_groups)


def _keep_groups() -> None:
    """In a forked child no group may ever be destroyed: gloo would wait for its threads, which the child does not have."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(list(dist.distributed_c10d._world.pg_map)))


def _communicator_name(backend: Any, rank: int = 0, init_comm: bool = True) -> str:
    """The result of `group._get_backend(...).get_hccl_comm_name(rank)`: the name in communication.json and the traces."""
    group = _group_of(backend)
    return _names[group.group_name] if group else ""


def _stream_id(backend: Any, p2p: bool = False) -> int:
    """The result of `group._get_backend(...)._get_stream_id(p2p)`: the stream of the group's collectives, or of its messages."""
    group = _group_of(backend)
    if group is None:
        raise RuntimeError("only hccl backends have a stream")
    return int(_ops.hccl_stream(group.boxed(), p2p))


def _group_of(backend: Any) -> Any:
    """The group of ours that has this backend."""
    for group in dist.distributed_c10d._world.pg_map:
        if group.group_name in _names and group._get_backend(torch.device("npu")) is backend:
            return group
    return None


def _new_backend(options: Any, backend_options: Any = None) -> Any:
    """The backend of one process in one group."""
    rank, size, store = options.group_rank, options.group_size, options.store
    name, file, token = _meet(store, rank, size, str(options.group_id))
    _names[str(options.group_id)] = name
    try:
        holder = dist.ProcessGroup(store, rank, size)
        gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo/", store), rank, size, timeout=options.timeout)
        holder._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        ranks = list(options.global_ranks_in_group) or list(range(size))
        _ops.attach_hccl(holder.boxed(), name, ranks, file, token, int(options.timeout.total_seconds() * 1000))
    finally:
        if file >= 0:
            os.close(file)
    return holder._get_backend(torch.device("npu"))


def _meet(store: Any, rank: int, size: int, group: str) -> tuple[str, int, str]:
    """A unique name for the group, and memory that its processes share (-1 if they cannot).

    They record there when they enter an operator, so that each knows which rank it waited for.
    """
    if rank == 0:
        token = secrets.token_hex(16)
        file = os.memfd_create("stepscope-hccl", os.MFD_CLOEXEC)
        os.ftruncate(file, _ops.arrivals_bytes(size))
        os.pwrite(file, token.encode(), 0)
        host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
        name = f"{host}%sim_{os.getpid()}_{re.sub(r'[^A-Za-z0-9.-]', '-', group)}_{time.time_ns() // 1000}"
        store.set("hccl", f"{name} {os.getpid()} {file} {token}")
        return name, file, token
    name, process, number, token = store.get("hccl").decode().split(" ")
    try:
        file = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # another machine or container: the wait is unknown
        file = -1
    return name, file, token

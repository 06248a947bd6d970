# SPDX-License-Identifier: Apache-2.0
"""What is written beside the records: user metadata, environment, process groups (docs/formats/profiler-api.md 11, 20)."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable
from typing import Any

from stepscope.collect import messages

LONGEST_TEXT, LONGEST_TOTAL, LONGEST_TRACE_ID = 4096, 50 * 1024, 1024
ENVIRONMENT = (
    "ASCEND_GLOBAL_LOG_LEVEL", "HCCL_RDMA_TC", "HCCL_RDMA_SL", "ACLNN_CACHE_LIMIT", "HOST_CACHE_CAPACITY",
    "ASCEND_ENHANCE_ENABLE", "PYTORCH_NPU_ALLOC_CONF", "ASCEND_LAUNCH_BLOCKING", "HCCL_ALGO",
)  # fmt: skip


class Metadata:
    """Keys that the user added to one profiler; they go into each of its captures."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def add(self, key: Any, value: Any) -> None:
        if self._texts(key, value):
            self._keep(key, value)

    def add_json(self, key: Any, value: Any) -> None:
        if not self._texts(key, value):
            return
        try:
            parsed = json.loads(value)
        except ValueError:
            messages.warning(f"metadata {key!r} is not valid JSON and was left out")
            return
        self._keep(key, parsed)

    def _texts(self, key: Any, value: Any) -> bool:
        if not isinstance(key, str) or not isinstance(value, str):
            messages.warning("metadata keys and values must be str; this pair was left out")
            return False
        if len(key) > LONGEST_TEXT or len(value) > LONGEST_TEXT:
            messages.warning(f"metadata {key[:40]!r} is longer than {LONGEST_TEXT} characters and was left out")
            return False
        return True

    def _keep(self, key: str, value: Any) -> None:
        proposed = {**self.values, key: value}
        if len(json.dumps(proposed, ensure_ascii=False).encode()) >= LONGEST_TOTAL:
            messages.warning(f"metadata {key[:40]!r} was left out: with it metadata would exceed {LONGEST_TOTAL // 1024} KiB")
            return
        if key in self.values:
            messages.warning(f"metadata {key!r} already existed and is replaced")
        self.values = proposed


def environment() -> dict[str, str]:
    return {name: os.environ.get(name, "") for name in ENVIRONMENT}


def trace_id(callback: Callable[[], Any] | None) -> str:
    if callback is not None:
        given = callback()
        if isinstance(given, str) and 0 < len(given) <= LONGEST_TRACE_ID:
            return given
        messages.warning(f"the trace id callback must return a str of at most {LONGEST_TRACE_ID} characters; a default is used")
    return f"{uuid.uuid4().int:032X}"


def rank() -> str | int | None:
    """The variable RANK unchanged, else torch.distributed's rank; None in a single process."""
    if os.environ.get("RANK"):
        return os.environ["RANK"]
    distributed = _distributed()
    return int(distributed.get_rank()) if distributed else None


def global_rank() -> int:
    """The initialised group's, else RANK, else 0."""
    distributed = _distributed()
    return int(distributed.get_rank() if distributed else os.environ.get("RANK") or 0)


def world_size() -> int:
    """The initialised group's, else WORLD_SIZE, else 1."""
    distributed = _distributed()
    return int(distributed.get_world_size() if distributed else os.environ.get("WORLD_SIZE") or 1)


def process_groups() -> dict[str, dict[str, Any]]:
    """Every communicator of this rank with its ranks, of whatever backend."""
    distributed = _distributed()
    if not distributed:
        return {}
    groups: dict[str, dict[str, Any]] = {}
    world = distributed.distributed_c10d._world
    for index, (group, (backend, _store)) in enumerate(world.pg_map.items()):
        ranks = distributed.get_process_group_ranks(group)
        own = distributed.get_rank(group)
        if own < 0:
            continue
        name = "default_group" if group is world.default_pg else str(world.pg_names.get(group, index))
        groups[_communicator(group, backend, index)] = {"group_name": name, "group_rank": own, "global_ranks": ranks}
    return groups


def _communicator(group: Any, backend: str, index: int) -> str:
    if "hccl" in backend:
        import torch

        try:
            inner = group._get_backend(torch.device("npu"))
        except RuntimeError:
            inner = None  # without an NPU, where gloo is registered under that name
        name = inner and inner.get_hccl_comm_name(torch.distributed.get_rank(group), init_comm=False)
        if name:
            return str(name)
    return f"{backend.split(':')[-1]}_{index}"


def _distributed() -> Any:
    """torch.distributed if it is initialised; never imports it."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None

# SPDX-License-Identifier: Apache-2.0
"""Which block of memory each tensor lived in: addresses are reused, so a block is an address between malloc and free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import polars as pl

from stepscope.analysis.memory.blocks import BLOCK_FREE, MALLOC, UNKNOWN, actions
from stepscope.tables import Tables
from stepscope.tables.tensor_text import Input, Tensor, parse_module_params, parse_optimizer_params, walk_inputs

_DEVICE_TYPES = {0: "cpu", 1: "cuda", 20: "npu"}

Turn = tuple[int, int, int, Any]  # time, what happens, row, its data
Place = tuple[int | None, str | None, int | None, int]  # process, kind of device, device, address


@dataclass
class Storage:
    """One block. Without `created_ns` it was there before the capture; without `is_tensor` no operator ever showed it."""

    device_type: str | None
    device: int | None
    created_ns: int | None = None
    freed_ns: int | None = None
    block_bytes: int | None = None
    view_bytes: int = 0
    is_tensor: bool = False

    @property
    def bytes(self) -> int:
        return self.view_bytes if self.block_bytes is None else self.block_bytes


@dataclass
class OpUse:
    """Inputs of one operator: per position the blocks of its tensors."""

    op: int
    inputs: list[Input]
    blocks: list[list[int]] = field(default_factory=list)


@dataclass
class Parameter:
    """A parameter as a module or an optimizer shows it; -1 where there is no tensor."""

    tensor: int
    gradient: int
    state: list[int]


@dataclass
class Storages:
    """All blocks, and who used them; blocks are named by their number."""

    blocks: list[Storage] = field(default_factory=list)
    uses: list[OpUse] = field(default_factory=list)
    events: dict[int, int] = field(default_factory=dict)  # row of the memory event -> block
    parameters: list[Parameter] = field(default_factory=list)


def followed(tables: Tables) -> Storages:
    """Walk operators, allocator events and module calls by time and name the block of everything they touch."""
    found = Storages()
    live: dict[Place, int] = {}

    def seen(pid: int | None, tensor: Tensor | None) -> int:
        if tensor is None or tensor.storage is None:
            return -1
        kind = _DEVICE_TYPES.get(tensor.device_type)
        device = None if kind == "cpu" else tensor.device
        place = (pid, kind, device, tensor.storage)
        number = live.get(place)
        if number is None:
            number = live[place] = len(found.blocks)
            found.blocks.append(Storage(kind, device))
        block = found.blocks[number]
        block.is_tensor = True
        block.view_bytes = max(block.view_bytes, _view_bytes(tensor))
        return number

    def allocator(row: int, event: tuple[int, Place, bool, int]) -> None:
        time, place, is_malloc, size = event
        number = None if is_malloc else live.pop(place, None)
        if number is None:
            number = len(found.blocks)
            found.blocks.append(Storage(place[1], place[2], block_bytes=size))
        block = found.blocks[number]
        if is_malloc:
            live[place] = number
            block.created_ns = time
        else:
            block.freed_ns = time
            block.block_bytes = size
        found.events[row] = number

    for what, row, value in _in_time_order(tables):
        if what == _EVENT:
            allocator(row, value)
        elif what == _USE:
            pid, inputs = value
            found.uses.append(OpUse(row, inputs, [[seen(pid, tensor) for tensor in _tensors(item)] for item in inputs]))
        else:
            pid, params = value
            found.parameters += [Parameter(seen(pid, t), seen(pid, g), [seen(pid, s) for s in state]) for t, g, state in params]
    return found


_PARAMS, _USE, _EVENT = 0, 1, 2  # at one time: a module is called, then its operator, then the operator allocates


def _in_time_order(tables: Tables) -> Iterator[tuple[int, int, Any]]:
    turns = [*_param_turns(tables), *_use_turns(tables), *_event_turns(tables.memory_events)]
    turns.sort(key=lambda turn: turn[:3])
    return ((what, row, value) for _, what, row, value in turns)


def _use_turns(tables: Tables) -> Iterator[Turn]:
    ops = tables.ops.select("start_ns", "pid", pl.col("dtypes").cast(pl.String), pl.int_range(pl.len()).alias("op"))
    joined = tables.op_inputs.join(ops, on="op", how="left", maintain_order="left")
    columns = ("op", "start_ns", "pid", "dtypes", "tensors", "tensor_lists", "scalars")
    for op, start, pid, dtypes, tensors, lists, scalars in joined.select(columns).iter_rows():
        yield start, _USE, op, (pid, walk_inputs(dtypes, tensors, lists, scalars))


def _event_turns(events: pl.DataFrame) -> Iterator[Turn]:
    rows = events.select(
        pl.int_range(pl.len()).alias("row"), "time_ns", "pid", pl.col("device_type").cast(pl.String), "device", "ptr",
        pl.Series("action", actions(events)), "bytes", pl.col("inner").fill_null(True),
    )  # fmt: skip
    # A block waits for other streams between free and block_free; for the tensor it is gone with the free.
    used = rows.filter("inner", pl.col("ptr").is_not_null() & ~pl.col("action").is_in([BLOCK_FREE, UNKNOWN]))
    for row, time, pid, kind, device, ptr, action, size, _ in used.iter_rows():
        yield time, _EVENT, row, (time, (pid, kind, None if kind == "cpu" else device, ptr), action == MALLOC, abs(size or 0))


def _param_turns(tables: Tables) -> Iterator[Turn]:
    called = tables.python_calls.group_by("key").agg(pl.col("start_ns", "pid").sort_by("start_ns").first())
    shown = tables.param_tensors.join(called, on="key", how="left", maintain_order="left")
    ops = tables.ops
    first, whose = (ops["start_ns"][0], ops["pid"][0]) if ops.height else (0, None)
    for row, (kind, text, start, pid) in enumerate(shown.select("kind", "text", "start_ns", "pid").iter_rows()):
        params: list[tuple[Tensor | None, Tensor | None, list[Tensor | None]]]
        if kind == "module":
            params = [(param.tensor, param.gradient, []) for param in parse_module_params(text)]
        else:
            params = [(param.tensor, param.gradient, list(param.state.values())) for param in parse_optimizer_params(text)]
        yield first if start is None else start, _PARAMS, row, (whose if pid is None else pid, params)


def _tensors(value: Input) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return value if isinstance(value, list) else []


def _view_bytes(tensor: Tensor) -> int:
    if not tensor.strides:
        return tensor.item_bytes * prod(tensor.sizes)
    if 0 in tensor.sizes:
        return 0
    return tensor.item_bytes * (1 + sum((size - 1) * stride for size, stride in zip(tensor.sizes, tensor.strides, strict=False)))

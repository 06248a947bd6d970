# SPDX-License-Identifier: Apache-2.0
"""Which bytes a framework record is made of: one declaration per file and layout generation.

The fixed part of a record is a packed little-endian struct, declared as a numpy dtype; text fields
follow it as inner TLVs (docs/formats/framework.md 3, 4, 11). Ids that the writer stores unsigned are declared
signed, because no real one has the top bit set, and a signed column needs no conversion later; keys are hashes
and stay unsigned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

HEADER = np.dtype([("type", "<u2"), ("length", "<u4")])


def _packed(**columns: str) -> np.dtype[Any]:
    """A struct of fields without padding; one character stands for the type, as in Python's `struct`."""
    kinds = {"q": "<i8", "Q": "<u8", "b": "i1", "B": "u1"}
    return np.dtype([(name, kinds[kind]) for name, kind in columns.items()])


@dataclass(frozen=True)
class Layout:
    """One generation of a record: its fixed struct and the columns of its inner fields by id."""

    fixed: np.dtype[Any]
    texts: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordKind:
    """One raw file: its name, the type of its outer header (None for flat files), newest layout first."""

    name: str
    doc: str
    columns: Mapping[str, str]
    layouts: tuple[Layout, ...]
    outer_type: int | None = None
    prefixes: tuple[str, ...] = ()

    @property
    def file_name(self) -> str:
        return f"torch.{self.name}"

    @cached_property
    def schema(self) -> dict[str, pl.DataType]:
        """Columns of the raw frame: numbers as stored, text as String; null where the layout lacks the field."""
        current = self.layouts[0]
        numbers = {name: _polars_type(current.fixed.fields[name][0]) for name in current.fixed.names or () if current.fixed.fields}
        texts: dict[str, pl.DataType] = {name: pl.String() for name in current.texts.values()}
        return {**numbers, **texts, **{name: pl.Int64() for name in self.columns if name not in numbers and name not in texts}}


def _polars_type(dtype: np.dtype[Any]) -> pl.DataType:
    return {"i8": pl.Int64(), "u8": pl.UInt64(), "i1": pl.Int8(), "u1": pl.UInt8()}[f"{dtype.kind}{dtype.itemsize}"]


_RANGE_HEAD = dict.fromkeys(
    ("start", "end", "sequence_number", "process_id", "start_thread_id", "end_thread_id", "forward_thread_id"), "q"
)

OP_RANGE = RecordKind(
    name="op_range",
    doc="One finished host range: operator, autograd node, user range, step marker (docs/formats/framework.md 4.1).",
    columns={
        "start": "Start, tick.",
        "end": "End, tick.",
        "sequence_number": "Autograd sequence number; -1 for none.",
        "process_id": "OS process.",
        "start_thread_id": "OS thread where it started.",
        "end_thread_id": "OS thread where it ended.",
        "forward_thread_id": "PyTorch's logical number of the forward thread; 0 when this is not a backward range.",
        "scope": "Kind of range.",
        "is_async": "0 or 1.",
        "name": "Name.",
        "dtypes": "Input types, `;` between.",
        "shapes": "Input shapes, `,` inside, `;` between.",
        "tensors": "Input tensors (docs/formats/framework.md 5.3).",
        "tensor_lists": "Input tensor lists (docs/formats/framework.md 5.3).",
        "scalars": "Type words of scalar inputs, `;` between.",
        "stack": "Call stack, innermost first, `;` between.",
        "modules": "Module hierarchy, `;` between.",
        "flops": "FLOP count as decimal text.",
        "flow_id": "MindSpore only.",
        "step": "MindSpore only.",
    },
    layouts=(
        Layout(
            _packed(**_RANGE_HEAD, scope="B", is_async="B"),
            {
                2: "name",
                3: "dtypes",
                4: "shapes",
                5: "tensors",
                6: "tensor_lists",
                7: "scalars",
                8: "stack",
                9: "modules",
                10: "flops",
            },
        ),
        Layout(
            _packed(**_RANGE_HEAD, scope="B", is_async="B"),
            {3: "name", 4: "dtypes", 5: "shapes", 6: "tensors", 7: "scalars", 8: "stack", 9: "modules", 10: "flops"},
        ),
        Layout(_packed(**_RANGE_HEAD, is_async="B"), {3: "name", 4: "dtypes", 5: "shapes", 6: "stack", 7: "modules", 8: "flops"}),
        Layout(
            _packed(**_RANGE_HEAD, flow_id="q", step="q", is_async="B"),
            {3: "name", 4: "dtypes", 5: "shapes", 6: "stack", 7: "modules", 8: "flops"},
        ),
    ),
    outer_type=1,
    prefixes=("torch.op_range", "op_range_"),
)

_MARK = _packed(time="q", category="q", correlation_id="q", thread_id="q", process_id="q")

OP_MARK = RecordKind(
    name="op_mark",
    doc="One moment of a task on its way through the host task queue (docs/formats/framework.md 4.2).",
    columns={
        "time": "Moment, tick.",
        "category": "0 enqueue start, 1 enqueue end, 2 dequeue start, 3 dequeue end.",
        "correlation_id": "Task number; not valid in category 0.",
        "thread_id": "OS thread.",
        "process_id": "OS process.",
        "name": "Task name.",
    },
    layouts=(Layout(_MARK, {1: "name"}), Layout(_MARK, {2: "name"})),
    outer_type=2,
    prefixes=("torch.op_mark",),
)

_MEMORY_HEAD = {
    **dict.fromkeys(("ptr", "time", "alloc_size", "total_allocated", "total_reserved", "total_active", "stream"), "q"),
    "device_type": "b",
    "device_index": "b",
}
_OWNER = {"thread_id": "q", "process_id": "q"}

MEMORY_USAGE = RecordKind(
    name="memory_usage",
    doc="One allocator event (docs/formats/framework.md 4.3).",
    columns={
        "ptr": "Block address.",
        "time": "Moment, tick.",
        "alloc_size": "Bytes; negative when given back.",
        "total_allocated": "Bytes allocated after the event.",
        "total_reserved": "Bytes reserved after the event.",
        "total_active": "Bytes active after the event.",
        "stream": "Stream number or pointer; -1 when unknown.",
        "device_type": "0 CPU, 1 CUDA, 20 NPU.",
        "device_index": "Device; -1 for CPU.",
        "component_type": "0 caching allocator, 1 workspace allocator.",
        "data_type": "0 malloc, 1 free, 2 block free, 3 invalid.",
        "allocator_type": "0 inner, 1 external, 2 invalid.",
        "thread_id": "OS thread.",
        "process_id": "OS process.",
    },
    layouts=(
        Layout(_packed(**_MEMORY_HEAD, component_type="B", data_type="B", allocator_type="B", **_OWNER)),
        Layout(_packed(**_MEMORY_HEAD, data_type="B", allocator_type="B", **_OWNER)),
        # Only the size of this one is known; that its one byte is the data type is a guess (docs/formats/framework.md 11, 15).
        Layout(_packed(**_MEMORY_HEAD, data_type="B", **_OWNER)),
    ),
    outer_type=3,
    prefixes=("torch.memory_usage",),
)

PYTHON_TRACER_FUNC = RecordKind(
    name="python_tracer_func",
    doc="One call or return of the Python tracer (docs/formats/framework.md 4.4).",
    columns={
        "time": "Moment, tick.",
        "thread_id": "OS thread.",
        "process_id": "OS process.",
        "key": "Hash of the callee.",
        "tag": "0 Python call, 1 Python return, 2 C call, 3 C return.",
    },
    layouts=(Layout(_packed(time="q", thread_id="q", process_id="q", key="Q", tag="B")),),
    prefixes=("torch.python_tracer_func",),
)

PYTHON_TRACER_HASH = RecordKind(
    name="python_tracer_hash",
    doc="Text of a key of the Python tracer (docs/formats/framework.md 4.5).",
    columns={"key": "Hash of the callee.", "value": "Text of the callee."},
    layouts=(Layout(_packed(key="Q"), {1: "value"}),),
    outer_type=4,
    prefixes=("torch.python_tracer_hash",),
)

PARAM_TENSOR_INFO = RecordKind(
    name="param_tensor_info",
    doc="Parameter tensors of a module or an optimizer (docs/formats/framework.md 4.6).",
    columns={
        "key": "Key of the call in python_tracer_func.",
        "module_params": "Parameters of a module (docs/formats/framework.md 5.3).",
        "optimizer_params": "Parameters, gradients and state of an optimizer (docs/formats/framework.md 5.3).",
    },
    layouts=(Layout(_packed(key="Q"), {1: "module_params", 2: "optimizer_params"}),),
    outer_type=5,
    prefixes=("torch.param_tensor_info",),
)

GC_RECORD = RecordKind(
    name="gc_record",
    doc="One Python garbage collection over the threshold (docs/formats/framework.md 4.7).",
    columns={"process_id": "OS process.", "start": "Start, tick.", "end": "End, tick."},
    layouts=(Layout(_packed(process_id="q", start="q", end="q")),),
    prefixes=("torch.gc_record",),
)

KINDS: dict[str, RecordKind] = {
    kind.name: kind
    for kind in (OP_RANGE, OP_MARK, MEMORY_USAGE, PYTHON_TRACER_FUNC, PYTHON_TRACER_HASH, PARAM_TENSOR_INFO, GC_RECORD)
}

# Files of 2023 that were replaced by the tracer files (docs/formats/framework.md 11).
PYTHON_FUNC_CALL = RecordKind(
    name="python_func_call",
    doc="One call or return with the callee's text in it.",
    columns={"time": "", "thread_id": "", "process_id": "", "tag": "", "name": ""},
    layouts=(Layout(_packed(time="q", thread_id="q", process_id="q", tag="B"), {2: "name"}),),
    outer_type=1,
    prefixes=("torch.python_func_call",),
)
PYTHON_MODULE_CALL = RecordKind(
    name="python_module_call",
    doc="Which call of its thread was a call of a module.",
    columns={"index": "", "thread_id": "", "process_id": "", "uid": "", "module": ""},
    layouts=(Layout(_packed(index="q", thread_id="q", process_id="q"), {2: "uid", 3: "module"}),),
    outer_type=1,
    prefixes=("torch.python_module_call",),
)


def detect(kind: RecordKind, payload: memoryview) -> Layout | None:
    """The generation a record's payload belongs to, or None when it does not show it (docs/formats/framework.md 11)."""
    if len(kind.layouts) == 1:
        return kind.layouts[0]
    for layout in kind.layouts:
        if _fits(layout, payload):
            return layout
    return None


def _fits(layout: Layout, payload: memoryview) -> bool:
    position = layout.fixed.itemsize
    if not layout.texts:
        return len(payload) == position
    first = min(layout.texts)
    if int.from_bytes(payload[position : position + 2], "little") != first:
        return False
    while position + HEADER.itemsize <= len(payload):
        position += HEADER.itemsize + int.from_bytes(payload[position + 2 : position + 6], "little")
    return position == len(payload)

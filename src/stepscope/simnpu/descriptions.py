# SPDX-License-Identifier: Apache-2.0
"""Descriptions of kernels as columns, read from the device once and kept by number."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.cann.host.codes import CORES, DATA_TYPES, FORMATS
from stepscope.formats.cann.write.folder import ProfWriter

AI_CORE, AI_CPU, AI_VECTOR_CORE, MIX_AIC, MIX_AIV, COMMUNICATION = 0, 1, 2, 4, 5, 9
_CORE_NUMBERS = {name: number for number, name in CORES.items()}
_DTYPE_NUMBERS = {name: number for number, name in DATA_TYPES.items() if number < 200}
_FORMAT_NUMBERS = {name: number for number, name in FORMATS.items() if number < 200}
_UNDEFINED_TYPE, _PLAIN_FORMAT = 28, 2  # DT_UNDEFINED, ND
_PLACES = 8  # of a shape

KERNEL = np.dtype(
    [
        ("name", "<u8"),
        ("type", "<u8"),
        ("attributes", "<u8"),  # 0 for an operator without
        ("call", "<u4"),  # type of the acl call
        ("core", "<u4"),
        ("blocks", "<u4"),
        ("mix_ratio", "<u4"),
        ("flops", "<f8"),
        ("read", "<f8"),  # bytes of inputs
        ("written", "<f8"),  # bytes of outputs
        ("modelled_ns", "<f8"),
        ("half_floats", "?"),
    ]
)
TENSOR = np.dtype([("kind", "<u4"), ("format", "<u4"), ("dtype", "<u4"), ("shape", "<u4", _PLACES)])
_ITEM_BYTES = {
    "FLOAT": 4, "FLOAT16": 2, "DT_BF16": 2, "DOUBLE": 8, "INT64": 8, "INT32": 4, "INT16": 2, "INT8": 1, "UINT8": 1, "BOOL": 1,
    "COMPLEX64": 8, "COMPLEX128": 16,
}  # fmt: skip


class Descriptions:
    """Rows of kernels by their number; texts enter the folder's dictionaries when they are first seen."""

    def __init__(self, writer: ProfWriter, describe: Callable[[int], Mapping[str, Any]]) -> None:
        self._writer, self._describe = writer, describe
        self._rows = np.zeros(1, KERNEL)
        self._known = np.zeros(1, bool)
        self._descriptions: dict[int, Mapping[str, Any]] = {}
        # Tensors of all kernels in one array; for each kernel the index of its first and their number.
        self._tensors: npt.NDArray[Any] = np.empty(0, TENSOR)
        self._first, self._count = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.marks: dict[int, str] = {}  # names in the task queue

    def rows(self, numbers: npt.NDArray[Any], *, changed: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[Any]:
        """One row of `KERNEL` per number; those in `changed` are read from the device again."""
        self._make_room(int(numbers.max(initial=0)))
        if changed is not None:
            self._known[numbers[changed]] = False
        for number in np.unique(numbers[~self._known[numbers]]).tolist():
            self._load(number)
        return np.asarray(self._rows[numbers])

    def description(self, number: int) -> Mapping[str, Any]:
        """The description as last read."""
        return self._descriptions.get(number, {})

    def tensors(self, numbers: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """Tensors of these operators: the row of each tensor's operator, and its fields."""
        first, count = self._first[numbers], self._count[numbers]
        of = np.repeat(np.arange(len(numbers)), count)
        place = first[of] + np.arange(len(of)) - (np.cumsum(count) - count)[of]
        return of, np.asarray(self._tensors[place])

    def _make_room(self, number: int) -> None:
        missing = number + 1 - len(self._rows)
        if missing > 0:
            missing = max(missing, len(self._rows))
            self._rows = np.concatenate([self._rows, np.zeros(missing, KERNEL)])
            self._known = np.concatenate([self._known, np.zeros(missing, bool)])
            self._first, self._count = (np.concatenate([old, np.zeros(missing, np.int64)]) for old in (self._first, self._count))

    def _load(self, number: int) -> None:
        description = self._describe(number) if number else {}
        self._known[number] = True
        if self._descriptions.get(number) == description:
            return
        self._descriptions[number] = description
        name, call = description.get("name", ""), description.get("api") or description.get("name", "")
        inputs, outputs = description.get("inputs", []), description.get("outputs", [])
        core = _CORE_NUMBERS.get(description.get("core", ""), AI_VECTOR_CORE)
        blocks = max(1, int(description.get("blocks", 1)))
        group = "HOST_HCCL" if core == COMMUNICATION else "ACL_NN"
        self.marks[number] = call
        attributes = attributes_text(description.get("attributes", {}))
        self._rows[number] = (
            self._writer.ids(name),
            self._writer.ids(description.get("type", "")),
            self._writer.ids(attributes) if attributes else 0,
            self._writer.acl_type(call, group) if call else 0,
            core,
            blocks,
            int(description.get("mix_blocks", 0)) // blocks,
            description.get("flops", 0),
            sum(map(_bytes, inputs)),
            sum(map(_bytes, outputs)),
            description.get("modelled_ns", 0),
            any(tensor.get("dtype") in ("FLOAT16", "DT_BF16") for tensor in inputs),
        )
        rows = [_tensor(tensor, kind) for kind, tensors in ((0, inputs), (1, outputs)) for tensor in tensors]
        self._first[number], self._count[number] = len(self._tensors), len(rows)
        self._tensors = np.concatenate([self._tensors, np.array(rows, TENSOR)])


def attributes_text(attributes: Mapping[str, Any]) -> str:
    """`name:value` for each attribute in the order of the operator's schema, `;` between them."""
    return ";".join(f"{name}:{json.dumps(value, separators=(',', ':'))}" for name, value in attributes.items())


def _tensor(description: Mapping[str, Any], kind: int) -> tuple[int, int, int, list[int]]:
    # A shape ends at its first 0 (docs/formats/cann.md 3.3): an empty tensor is written up to there.
    shape = [min(max(int(size), 0), 0xFFFF_FFFF) for size in description.get("shape", [])][:_PLACES]
    return (
        kind,
        _FORMAT_NUMBERS.get(description.get("format", ""), _PLAIN_FORMAT),
        _DTYPE_NUMBERS.get(description.get("dtype", ""), _UNDEFINED_TYPE),
        shape + [0] * (_PLACES - len(shape)),
    )


def _bytes(description: Mapping[str, Any]) -> int:
    size = _ITEM_BYTES.get(description.get("dtype", ""), 4)
    for length in description.get("shape", []):
        size *= int(length)
    return size

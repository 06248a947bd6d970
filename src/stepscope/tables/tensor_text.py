# SPDX-License-Identifier: Apache-2.0
"""The text in which tensors are recorded (tables `op_inputs`, `param_tensors`), parsed (docs/formats/framework.md 5.3).

    tensor   = impl ; [storage] ; dtype ; itemsize ; [sizes] ; [strides] ; device type ; device index
    list     = tensors, each followed by )
    module   = name ) tensor ) [gradient]                             between parameters: }
    optimizer= tensor ) [gradient] ) state, each  key > tensor ]      between parameters: }

Text that does not follow the grammar gives None or an empty list, never an exception.
"""

from __future__ import annotations

from typing import NamedTuple

_PARTS = 8
_NOT_TENSORS = ("None", "ScalarList", "")  # an empty token is Kineto's way to say None


class Tensor(NamedTuple):
    impl: int  # address of the tensor object
    storage: int | None  # address of its memory; None without storage
    dtype: str
    item_bytes: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]  # empty for sparse layouts
    device_type: int  # 0 CPU, 1 CUDA, 20 NPU
    device: int


class ModuleParam(NamedTuple):
    name: str
    tensor: Tensor | None
    gradient: Tensor | None


class OptimizerParam(NamedTuple):
    tensor: Tensor | None
    gradient: Tensor | None
    state: dict[str, Tensor | None]


Input = Tensor | list[Tensor] | str | None


def parse_tensor(text: str) -> Tensor | None:
    """One tensor; None for an empty or malformed text."""
    parts = text.split(";")
    if len(parts) != _PARTS:
        return None
    impl, storage, dtype, item_bytes, sizes, strides, device_type, device = parts
    try:
        return Tensor(
            int(impl, 16),
            int(storage, 16) if storage else None,
            dtype,
            int(item_bytes),
            _dims(sizes),
            _dims(strides),
            int(device_type),
            int(device),
        )
    except ValueError:
        return None


def _dims(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def parse_tensor_list(text: str) -> list[Tensor]:
    """The tensors of one list; an empty text is an empty list."""
    return [tensor for tensor in map(parse_tensor, text.split(")")) if tensor]


def walk_inputs(dtypes: str | None, tensors: str | None, tensor_lists: str | None, scalars: str | None) -> list[Input]:
    """The inputs of one operator in order: a tensor, a list of tensors, the type word of a scalar, or None for anything else."""
    if dtypes is None:
        return []
    next_tensor = iter(tensors.split(")") if tensors is not None else ())
    next_list = iter(tensor_lists.split("}") if tensor_lists is not None else ())
    next_scalar = iter(scalars.split(";") if scalars is not None else ())
    inputs: list[Input] = []
    for token in dtypes.split(";"):
        if token in _NOT_TENSORS:
            inputs.append(None)
        elif token == "TensorList":
            inputs.append(parse_tensor_list(next(next_list, "")))
        elif token == "Scalar":
            inputs.append(next(next_scalar, None))
        else:
            inputs.append(parse_tensor(next(next_tensor, "")))
    return inputs


def parse_module_params(text: str) -> list[ModuleParam]:
    """Parameters of a module with their gradients."""
    found = []
    for entry in text.split("}"):
        parts = entry.rsplit(")", 2)
        if len(parts) == 3:
            found.append(ModuleParam(parts[0], parse_tensor(parts[1]), parse_tensor(parts[2])))
    return found


def parse_optimizer_params(text: str) -> list[OptimizerParam]:
    """Parameters of an optimizer with their gradients and state."""
    found = []
    for entry in text.split("}"):
        parts = entry.split(")", 2)
        if len(parts) == 3:
            # A dtype may hold ">" (c10::complex<float>), a key does not: the first one ends the key.
            pairs = (item.partition(">") for item in parts[2].split("]") if item)
            state = {key: parse_tensor(value) for key, _, value in pairs}
            found.append(OptimizerParam(parse_tensor(parts[0]), parse_tensor(parts[1]), state))
    return found

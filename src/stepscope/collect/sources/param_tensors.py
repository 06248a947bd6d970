# SPDX-License-Identifier: Apache-2.0
"""Parameters, gradients and optimizer state, for the attribution of memory (docs/formats/framework.md 4.6, 5.3).

Read once, when a recording ends: by then gradients and state exist.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_TYPE, _MODULE, _OPTIMIZER = 5, 1, 2
_DTYPES = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long int",
    "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char", "bool": "bool",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip


def write_param_tensors(path: Path, instances: Iterable[tuple[int, bool, Any]]) -> None:
    """Write one record per module or optimizer (key, whether an optimizer, object) that has parameters."""
    records = []
    for key, is_optimizer, instance in instances:
        text = (optimizer_text(instance) if is_optimizer else module_text(instance)).encode("utf-8", "replace")
        if text:
            field = struct.pack("<HI", _OPTIMIZER if is_optimizer else _MODULE, len(text)) + text
            records.append(struct.pack("<HIQ", _TYPE, 8 + len(field), key) + field)
    if records:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o640), "wb") as file:
            file.writelines(records)


def module_text(module: Any) -> str:
    """The parameters that belong to the module itself, not to its children."""
    own = [(name, tensor_text(param), tensor_text(param.grad)) for name, param in module._parameters.items() if param is not None]
    return "}".join(f"{name}){param}){gradient}" for name, param, gradient in own if param)


def optimizer_text(optimizer: Any) -> str:
    params = []
    for group in optimizer.param_groups:
        for param in group["params"]:
            state = optimizer.state.get(param, {}) if hasattr(optimizer, "state") else {}
            stored = "".join(f"{key}>{text}]" for key, value in state.items() if (text := tensor_text(value)))
            text = tensor_text(param)
            if text:
                params.append(f"{text}){tensor_text(param.grad)}){stored}")
    return "}".join(params)


def tensor_text(tensor: Any) -> str:
    """One tensor in the grammar of docs/formats/framework.md 5.3; empty for anything else and for an unknown layout."""
    import torch

    if not isinstance(tensor, torch.Tensor) or tensor.is_nested or tensor.layout is not torch.strided:
        return ""
    try:
        address = tensor.untyped_storage().data_ptr()
        sizes, strides = (",".join(str(int(n)) for n in numbers) for numbers in (tensor.size(), tensor.stride()))
    except (RuntimeError, NotImplementedError, TypeError):  # a wrapper without storage or with symbolic sizes
        return ""
    name = str(tensor.dtype).removeprefix("torch.")
    device_type, device = _device(tensor.device)
    head = f"{tensor._cdata:#x};{address:#x};{_DTYPES.get(name, f'c10::{name.capitalize()}')};{tensor.element_size()}"
    return f"{head};{sizes};{strides};{device_type};{device}"


def _device(device: Any) -> tuple[int, int]:
    types = {"cpu": 0, "cuda": 1}
    return types.get(device.type, 20), -1 if device.index is None else device.index

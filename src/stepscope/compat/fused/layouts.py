# SPDX-License-Identifier: Apache-2.0
"""Casts, and operators that change a tensor's memory format on hardware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stepscope.compat.fused.operator import define, differentiable

ND = 2  # the only format here


def npu_dtype_cast(self: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return self.to(dtype)


def npu_format_cast(self: torch.Tensor, acl_format: Any) -> torch.Tensor:
    """The tensor itself: only hardware has formats other than ND."""
    return self


def get_npu_format(self: torch.Tensor) -> int:
    return ND


def _confusion_transpose(x: torch.Tensor, perm: list[int], shape: list[int], transpose_first: bool) -> torch.Tensor:
    turned = x.permute(perm).reshape(shape) if transpose_first else x.reshape(shape).permute(perm)
    return turned.clone(memory_format=torch.contiguous_format)


def _confusion_transpose_grad(grad: torch.Tensor, perm: list[int], shape: list[int], transpose_first: bool) -> torch.Tensor:
    back = sorted(range(len(perm)), key=perm.__getitem__)
    turned = grad.reshape([shape[axis] for axis in perm]).permute(back) if transpose_first else grad.permute(back).reshape(shape)
    return turned.clone(memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.of = (inputs[1], list(inputs[0].shape), inputs[3])


_backward = define(
    "npu_confusion_transpose_backward(Tensor grad, int[] perm, int[] shape, bool transpose_first) -> Tensor",
    _confusion_transpose_grad,
)
OPERATORS: dict[str, Callable[..., Any]] = {
    "npu_dtype_cast": npu_dtype_cast,
    "npu_format_cast": npu_format_cast,
    "get_npu_format": get_npu_format,
    "npu_confusion_transpose": define(
        "npu_confusion_transpose(Tensor self, int[] perm, int[] shape, bool transpose_first) -> Tensor", _confusion_transpose
    ),
}
differentiable("npu_confusion_transpose", saves=_keep, backward=lambda ctx, grad: (_backward(grad, *ctx.of), None, None, None))

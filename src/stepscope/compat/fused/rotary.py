# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding: `x * r1 + rotated(x) * r2`."""

from __future__ import annotations

from typing import Any

import torch

from stepscope.compat.fused.operator import define, differentiable, sum_to_shape


def _rotary_mul(x: torch.Tensor, r1: torch.Tensor, r2: torch.Tensor, rotary_mode: str = "half") -> torch.Tensor:
    return x * r1 + _rotate(x, rotary_mode) * r2


def _rotary_mul_grad(
    grad: torch.Tensor, x: torch.Tensor, r1: torch.Tensor, r2: torch.Tensor, rotary_mode: str = "half"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    # Rotating is a quarter turn of each pair: turning back is turning on with the sign changed.
    of_x = grad * r1 - _rotate(grad * r2, rotary_mode)
    return of_x.to(x.dtype), sum_to_shape(grad * x, r1), sum_to_shape(grad * _rotate(x, rotary_mode), r2)


def _rotate(x: torch.Tensor, rotary_mode: str) -> torch.Tensor:
    if rotary_mode == "half":
        first, second = x.chunk(2, -1)
        return torch.cat([-second, first], -1)
    if rotary_mode == "interleave":
        return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    raise ValueError(f"rotary_mode={rotary_mode!r} is neither half nor interleave")


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.mode = inputs[3]


_backward = define(
    "npu_rotary_mul_backward(Tensor grad, Tensor self, Tensor r1, Tensor r2, str rotary_mode='half') -> (Tensor, Tensor, Tensor)",
    _rotary_mul_grad,
)
OPERATORS = {
    "npu_rotary_mul": define("npu_rotary_mul(Tensor self, Tensor r1, Tensor r2, str rotary_mode='half') -> Tensor", _rotary_mul)
}
differentiable("npu_rotary_mul", saves=_keep, backward=lambda ctx, grad: (*_backward(grad, *ctx.saved_tensors, ctx.mode), None))

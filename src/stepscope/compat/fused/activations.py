# SPDX-License-Identifier: Apache-2.0
"""Gated and plain activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from stepscope.compat.fused.operator import define, differentiable

_FAST = 1.702


def _swiglu(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    gate, value = x.chunk(2, dim)
    return functional.silu(gate) * value


def _swiglu_grad(grad: torch.Tensor, x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    gate, value = x.chunk(2, dim)
    return torch.cat([_silu_grad(grad * value, gate), grad * functional.silu(gate)], dim)


def _silu_grad(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(x)
    return grad * gate * (1 + x * (1 - gate))


def _fast_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(_FAST * x)


def _fast_gelu_grad(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(_FAST * x)
    return grad * (gate + _FAST * x * gate * (1 - gate))


def _mish_grad(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    inner = torch.tanh(functional.softplus(x))
    return grad * (inner + x * (1 - inner.square()) * torch.sigmoid(x))


def _masked_softmax(x: torch.Tensor, mask: torch.Tensor, scale: float = 1.0, fixed_triu_mask: bool = False) -> torch.Tensor:
    return torch.softmax((x * scale).masked_fill(_mask(x, mask, fixed_triu_mask), -10000.0), -1)


def _masked_softmax_grad(
    grad: torch.Tensor, y: torch.Tensor, mask: torch.Tensor, scale: float, fixed_triu_mask: bool
) -> torch.Tensor:
    inner = y * (grad - (grad * y).sum(-1, keepdim=True))
    return (inner * scale).masked_fill(_mask(y, mask, fixed_triu_mask), 0.0)


def _mask(x: torch.Tensor, mask: torch.Tensor, fixed_triu_mask: bool) -> torch.Tensor:
    if fixed_triu_mask:
        return torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return mask.bool()


def _of_one_input(name: str, kernel: Callable[..., Any], gradient: Callable[..., Any]) -> Callable[..., Any]:
    operator = define(f"{name}(Tensor self) -> Tensor", kernel)
    backward = define(f"{name}_backward(Tensor grad, Tensor self) -> Tensor", gradient)
    differentiable(
        name,
        saves=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
        backward=lambda ctx, grad: backward(grad, *ctx.saved_tensors),
    )
    return operator


def _keep_swiglu(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.dim = inputs[1]


def _keep_softmax(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(output, inputs[1])
    ctx.rest = inputs[2:]


_swiglu_operator = define("npu_swiglu(Tensor self, int dim=-1) -> Tensor", _swiglu)
_swiglu_backward = define("npu_swiglu_backward(Tensor grad, Tensor self, int dim=-1) -> Tensor", _swiglu_grad)
differentiable(
    "npu_swiglu", saves=_keep_swiglu, backward=lambda ctx, grad: (_swiglu_backward(grad, *ctx.saved_tensors, ctx.dim), None)
)
_softmax_operator = define(
    "npu_scaled_masked_softmax(Tensor x, Tensor mask, float scale=1.0, bool fixed_triu_mask=False) -> Tensor", _masked_softmax
)
_softmax_backward = define(
    "npu_scaled_masked_softmax_backward(Tensor grad, Tensor y, Tensor mask, float scale, bool fixed_triu_mask) -> Tensor",
    _masked_softmax_grad,
)
differentiable(
    "npu_scaled_masked_softmax",
    saves=_keep_softmax,
    backward=lambda ctx, grad: (_softmax_backward(grad, *ctx.saved_tensors, *ctx.rest), None, None, None),
)

OPERATORS = {
    "npu_swiglu": _swiglu_operator,
    "npu_scaled_masked_softmax": _softmax_operator,
    "npu_silu": _of_one_input("npu_silu", functional.silu, _silu_grad),
    "npu_mish": _of_one_input("npu_mish", functional.mish, _mish_grad),
    "npu_fast_gelu": _of_one_input("npu_fast_gelu", _fast_gelu, _fast_gelu_grad),
}
OPERATORS["fast_gelu"] = OPERATORS["npu_fast_gelu"]

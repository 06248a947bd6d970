# SPDX-License-Identifier: Apache-2.0
"""Root-mean-square normalisation, alone and with the addition before it."""

from __future__ import annotations

from typing import Any

import torch

from stepscope.compat.fused.operator import define, differentiable


def _rms_norm(x: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> tuple[torch.Tensor, torch.Tensor]:
    over = _normalised_dims(x, gamma)
    wide = x.float()
    rstd = torch.rsqrt(wide.square().mean(over, keepdim=True) + epsilon)
    return (wide * rstd * gamma.float()).to(x.dtype), rstd


def _rms_norm_grad(
    grad: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    over = _normalised_dims(x, gamma)
    unit = x.float() * rstd
    scaled = grad.float() * gamma.float()
    of_x = rstd * (scaled - unit * (scaled * unit).mean(over, keepdim=True))
    of_gamma = (grad.float() * unit).sum_to_size(gamma.shape)
    return of_x.to(x.dtype), of_gamma.to(gamma.dtype)


def _add_rms_norm(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    added = x1 + x2
    return (*_rms_norm(added, gamma, epsilon), added)


def _normalised_dims(x: torch.Tensor, gamma: torch.Tensor) -> tuple[int, ...]:
    """The last dimensions of `x`, those that `gamma` has."""
    return tuple(range(x.dim() - gamma.dim(), x.dim()))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output[1])


def _backward(ctx: Any, of_y: torch.Tensor | None, of_rstd: torch.Tensor | None) -> tuple[Any, ...]:
    return (None, None, None) if of_y is None else (*_rms_norm_backward(of_y, *ctx.saved_tensors), None)


def _keep_added(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.save_for_backward(output[2], inputs[2], output[1])


def _backward_added(
    ctx: Any, of_y: torch.Tensor | None, of_rstd: torch.Tensor | None, of_x: torch.Tensor | None
) -> tuple[Any, ...]:
    through, of_gamma, _epsilon = _backward(ctx, of_y, of_rstd)
    both = through if of_x is None else of_x if through is None else through + of_x
    return both, both, of_gamma, None


_rms_norm_backward = define(
    "npu_rms_norm_backward(Tensor grad, Tensor self, Tensor gamma, Tensor rstd) -> (Tensor, Tensor)", _rms_norm_grad
)
OPERATORS = {
    "npu_rms_norm": define("npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)", _rms_norm),
    "npu_add_rms_norm": define(
        "npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)", _add_rms_norm
    ),
}
differentiable("npu_rms_norm", saves=_keep, backward=_backward)
differentiable("npu_add_rms_norm", saves=_keep_added, backward=_backward_added)

# SPDX-License-Identifier: Apache-2.0
"""How a fused operator is registered with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def define(schema: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Define `npu::name(...)` with this kernel, which has the schema's defaults; returns the function that calls it."""
    name = schema.partition("(")[0]
    torch.library.define(f"npu::{name}", schema.removeprefix(name))
    torch.library.impl(f"npu::{name}", "cpu")(kernel)
    operator: Callable[..., Any] = getattr(torch.ops.npu, name)
    return operator


def differentiable(name: str, *, saves: Callable[..., Any], backward: Callable[..., Any]) -> None:
    """Give an operator its gradient.

    Args:
        name: of the operator.
        saves: takes the context, the inputs and the outputs; keeps what `backward` needs.
        backward: takes the context and the gradients of the outputs (None if absent); returns one gradient per input.
    """

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.set_materialize_grads(False)  # statistics rarely have gradients: no kernels for zeros
        saves(ctx, inputs, output)

    torch.library.register_autograd(f"npu::{name}", backward, setup_context=keep)


def sum_to_shape(gradient: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The gradient of a tensor that was broadcast."""
    return gradient.sum_to_size(like.shape).to(like.dtype)

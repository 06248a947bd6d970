# SPDX-License-Identifier: Apache-2.0
"""Redirects a script from one kind of device to another: `npu` to `cpu`, or `cuda` to `npu`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_FACTORIES = (
    "arange", "as_tensor", "empty", "empty_like", "empty_strided", "eye", "from_file", "full", "full_like", "linspace", "logspace",
    "normal", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
    "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like", "load", "set_default_device",
)  # fmt: skip
_TENSOR_METHODS = ("to", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")


@dataclass(frozen=True)
class Redirection:
    """From the devices of one kind to those of another."""

    source: str
    target: str

    def value(self, given: Any) -> Any:
        """`given`, or its counterpart on the target if it names a source device."""
        import torch

        if isinstance(given, str) and (given == self.source or given.startswith(f"{self.source}:")):
            return self.target if self.target == "cpu" else given.replace(self.source, self.target, 1)
        if isinstance(given, torch.device) and given.type == self.source:
            return torch.device(self.value(str(given)))
        return given

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with its arguments redirected."""

        @functools.wraps(function)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            return function(*map(self.value, arguments), **{name: self.value(given) for name, given in options.items()})

        return wrapper

    def activate(self) -> None:
        """Redirect factories, copies, modules, autocast, loss scaling and loading, in the whole process."""
        import torch

        for name in _FACTORIES:
            setattr(torch, name, self.around(getattr(torch, name)))
        for name in _TENSOR_METHODS:
            setattr(torch.Tensor, name, self.around(getattr(torch.Tensor, name)))
        torch.nn.Module.to = self.around(torch.nn.Module.to)
        torch.nn.Module.to_empty = self.around(torch.nn.Module.to_empty)
        for kind in (torch.autocast, torch.amp.GradScaler):
            kind.__init__ = self.around(kind.__init__)

# SPDX-License-Identifier: Apache-2.0
"""For the interpreters that tests start: optimizers and torch's profiler do not import torch's compiler.

torch asks the compiler to leave its optimizers alone and whether it uses graphs, and imports it for that (with sympy: 1.3 to 2 CPU
s). A hundred scripts of the tests train and compile nothing. Where a script has imported the compiler, torch's own functions run.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Function = Callable[..., Any]


class _Patched(MetaPathFinder, Loader):
    """Finds the modules below as Python does, and replaces one function of each."""

    def __init__(self) -> None:
        self._loaders: dict[str, Any] = {}

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in PATCHES else None
        if spec is not None:
            self._loaders[name], spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self._loaders[module.__name__].exec_module(module)
        name, patch = PATCHES[module.__name__]
        setattr(module, name, patch(getattr(module, name)))


def _marks(theirs: Function) -> Function:
    def mark(function: Function | None = None, recursive: bool = True) -> Function:
        if function is None:
            return functools.partial(mark, recursive=recursive)
        return _choosing(function, theirs(function, recursive))

    return mark


def _steps(theirs: Function) -> Function:
    def decorate(step: Function) -> Function:
        def plain(self: Any, *values: Any, **named: Any) -> Any:
            with sys.modules["torch"].set_grad_enabled(self.defaults["differentiable"]):
                return step(self, *values, **named)

        return _choosing(plain, theirs(step), step)

    return decorate


def _lazy_modules(theirs: Function) -> Function:
    def look_up(name: str) -> Any:
        if name == "_inductor" and "torch._inductor" not in sys.modules:
            raise AttributeError(name)
        return theirs(name)

    return look_up


def _choosing(plain: Function, theirs: Function, named_as: Function | None = None) -> Function:
    @functools.wraps(named_as or plain)
    def call(*values: Any, **named: Any) -> Any:
        return (theirs if "torch._dynamo" in sys.modules else plain)(*values, **named)

    return call


PATCHES = {
    "torch": ("__getattr__", _lazy_modules),
    "torch._compile": ("_disable_dynamo", _marks),
    "torch.optim.optimizer": ("_use_grad_for_differentiable", _steps),
}
sys.meta_path.insert(0, _Patched())

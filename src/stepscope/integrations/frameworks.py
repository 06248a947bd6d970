# SPDX-License-Identifier: Apache-2.0
"""Imports the framework of an adapter; where it is absent, the error says what to install."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from stepscope.errors import CaptureError


def framework(package: str, *modules: str) -> ModuleType:
    """The first of some modules that can be imported.

    Raises:
        CaptureError: none of them is installed.
    """
    for name in modules:
        try:
            return import_module(name)
        except ModuleNotFoundError as problem:
            if not name.startswith(problem.name or "?"):
                raise  # installed, but what it needs is not
    raise CaptureError(
        what=f"this adapter needs {package}",
        where=f"stepscope.integrations ({' or '.join(modules)})",
        cause="it is not installed in this Python",
        fix=f"pip install {package}",
    )

# SPDX-License-Identifier: Apache-2.0
"""Where a configuration comes from: a mapping, a file of JSON or YAML, or an object with attributes."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stepscope.errors import CaptureError


def load(config: Any) -> tuple[dict[str, Any], str]:
    """The configuration as plain dictionaries, and what to call it in an error."""
    if isinstance(config, (str, os.PathLike)):
        path = Path(config)
        return _plain(_parsed(path)), str(path)
    if config is None or isinstance(config, (bool, int, float, list, tuple)):
        raise CaptureError(
            "the profiler's configuration is not usable",
            where=repr(config),
            fix="give a dict, the path of a .json or .yaml file, or an object with attributes",
        )
    return _plain(config), "the given configuration" if isinstance(config, Mapping) else f"an object of {type(config).__name__}"


def block(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The block of that name, or the configuration itself when it is the block."""
    inner = config.get(name)
    return _plain(inner) if is_block(inner) else dict(config)


def has_any(config: Mapping[str, Any], names: Iterable[str]) -> bool:
    return any(name in config for name in names)


def attributes(value: Any) -> dict[str, Any]:
    """A mapping unchanged; of an object its attributes, read without calling anything."""
    if isinstance(value, Mapping):
        return {str(name): value[name] for name in value}
    shown = ((name, getattr(value, name)) for name in dir(value) if not name.startswith("_"))
    return {name: held for name, held in shown if not callable(held)}


def _plain(value: Any) -> dict[str, Any]:
    return {name: attributes(held) if is_block(held) else held for name, held in attributes(value).items()}


def is_block(value: Any) -> bool:
    return value is not None and not isinstance(value, (str, bytes, bool, int, float, list, tuple, set))


def _parsed(path: Path) -> Any:
    try:
        content = path.read_text(encoding="utf-8-sig")  # editors of other systems put a mark before the first character
        parsed = _yaml(content) if path.suffix in (".yaml", ".yml") else json.loads(content)
    except (OSError, ValueError) as problem:
        raise CaptureError(
            "the profiler's configuration cannot be read", where=str(path), cause=str(problem), fix="give a file of JSON or YAML"
        ) from None
    if not isinstance(parsed, Mapping):
        raise CaptureError("the profiler's configuration is not usable", where=str(path), cause="it is not a JSON object")
    return parsed


def _yaml(content: str) -> Any:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise ValueError("YAML needs pyyaml: pip install 'stepscope[mindspeed]', or use a JSON file") from None
    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as problem:
        raise ValueError(str(problem)) from None

# SPDX-License-Identifier: Apache-2.0
"""Recording that `MS_PROFILER_OPTIONS` requests, without a change of the script (docs/formats/mindspore.md 5)."""

from __future__ import annotations

import atexit
import enum
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from stepscope.collect import messages
from stepscope.frameworks.mindspore.arguments import OUTPUT_PATH, Parameters
from stepscope.frameworks.mindspore.constants import AicoreMetrics, ExportType, HostSystem, ProfilerActivity, ProfilerLevel
from stepscope.frameworks.mindspore.profiler import Profiler, profile
from stepscope.profiler.handlers import tensorboard_trace_handler

VARIABLE = "MS_PROFILER_OPTIONS"
_WORDS: dict[str, type[enum.Enum]] = {
    "profiler_level": ProfilerLevel, "aic_metrics": AicoreMetrics, "aicore_metrics": AicoreMetrics,
    "activities": ProfilerActivity, "host_sys": HostSystem, "export_type": ExportType,
}  # fmt: skip
_NOT_SETTABLE = ("schedule", "on_trace_ready")


def start() -> Profiler | None:
    """Begin recording if the variable says so; at the end of the process recording stops and is analysed.

    The variable is removed from the environment, so that MindSpore's own profiler does not start too.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    options = _options(text)
    if options is None or options.get("start", False) is not True:
        return None
    if "mindspore" in sys.modules:
        messages.warning(
            f"MindSpore was imported first and follows {VARIABLE} itself; import stepscope.mindspore before it, or run the script "
            "with `python -m stepscope.mindspore SCRIPT`"
        )
        return None
    del os.environ[VARIABLE]
    settings = {name: _to_member(name, value) for name, value in options.items() if name in _KNOWN}
    running = profile(on_trace_ready=tensorboard_trace_handler(str(options.get("output_path", OUTPUT_PATH))), **settings)
    atexit.register(_end, running)
    return running


_KNOWN = {*vars(Parameters()), "aicore_metrics"} - {"output_path", *_NOT_SETTABLE}


def _options(text: str) -> Mapping[str, Any] | None:
    try:
        options = json.loads(text)
    except ValueError as problem:
        messages.error(f"{VARIABLE} is not valid JSON, nothing is recorded: {problem}")
        return None
    if not isinstance(options, dict):
        messages.error(f"{VARIABLE} is not a JSON object, nothing is recorded")
        return None
    unknown = sorted(set(options) - _KNOWN - {"start", "output_path"})
    if unknown:
        messages.warning(f"{VARIABLE}: {', '.join(unknown)} cannot be set in this variable and is ignored")
    return options


def _to_member(name: str, value: Any) -> Any:
    """Enum members for the strings of the variable; invalid ones stay, and the check of arguments reports them."""
    kind = _WORDS.get(name)
    if kind is None:
        return value
    by_word = {item.value: item for item in kind}
    if isinstance(value, list):
        return [by_word.get(item, item) if isinstance(item, str) else item for item in value]
    return by_word.get(value, value) if isinstance(value, str) else value


def _end(running: Profiler) -> None:
    if running._has_started:
        running.stop()

# SPDX-License-Identifier: Apache-2.0
"""Recording that `MS_PROFILER_OPTIONS` asks for, without a word in the script (docs/formats/mindspore.md 5)."""

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
_NOT_HERE = ("schedule", "on_trace_ready")


def start() -> Profiler | None:
    """Begin to record when the variable says so; the process's end is the end of it, and its analysis.

    The variable is taken out of the environment, so that MindSpore's own profiler leaves the run to this one.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    options = _options(text)
    if options is None or options.get("start", False) is not True:
        return None
    if "mindspore" in sys.modules:
        messages.warning(
            f"MindSpore was imported before and has taken {VARIABLE} itself; import stepscope.mindspore first, or run the script "
            "with `python -m stepscope.mindspore SCRIPT`"
        )
        return None
    del os.environ[VARIABLE]
    settings = {name: _meant(name, value) for name, value in options.items() if name in _KNOWN}
    running = profile(on_trace_ready=tensorboard_trace_handler(str(options.get("output_path", OUTPUT_PATH))), **settings)
    atexit.register(_end, running)
    return running


_KNOWN = {*vars(Parameters()), "aicore_metrics"} - {"output_path", *_NOT_HERE}


def _options(text: str) -> Mapping[str, Any] | None:
    try:
        options = json.loads(text)
    except ValueError as problem:
        messages.error(f"{VARIABLE} is no JSON, nothing is recorded: {problem}")
        return None
    if not isinstance(options, dict):
        messages.error(f"{VARIABLE} is no JSON object, nothing is recorded")
        return None
    strange = sorted(set(options) - _KNOWN - {"start", "output_path"})
    if strange:
        messages.warning(f"{VARIABLE}: {', '.join(strange)} cannot be set there and is ignored")
    return options


def _meant(name: str, value: Any) -> Any:
    """Members for the words of the variable; what is wrong stays, and is told when the arguments are checked."""
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

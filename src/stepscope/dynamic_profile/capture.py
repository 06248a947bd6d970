# SPDX-License-Identifier: Apache-2.0
"""One capture requested while training runs: turns the request into a profiler."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from stepscope.collect import active, messages
from stepscope.collect.marks import api as marks
from stepscope.collect.marks import stages
from stepscope.control.config import CaptureRequest
from stepscope.profiler import AiCMetrics, ProfilerActivity, _ExperimentalConfig, profile, schedule, tensorboard_trace_handler

_EXPERIMENTAL = (
    "profiler_level", "aic_metrics", "l2_cache", "op_attr", "gc_detect_threshold", "data_simplification", "record_op_args",
    "export_type", "msprof_tx", "mstx", "host_sys", "mstx_domain_include", "mstx_domain_exclude", "sys_io", "sys_interconnection",
)  # fmt: skip


class Capture:
    """Records `request.steps` steps from the one that begins now.

    Args:
        request: what to record.
        first_step: number of the step that begins now.
        log: receives level and text of each message of the profiler.
    """

    def __init__(self, request: CaptureRequest, first_step: int, log: Callable[[str, str], None]):
        self.request, self.first_step = request, first_step
        self.steps_done = 0
        self.path: str | None = None
        self.last_warning: str | None = None  # the last warning of the profiler
        self._log = log
        self._mark = 0
        with messages.copied_to(self._on_message):
            self._profiler = _profiler(request, first_step)
            self.last_warning = None  # warnings about settings: defaults are used instead
            self._profiler.start()
            self._begin_mark()
        self.path = self._profiler.prof_if.prof_path or None

    @property
    def running(self) -> bool:
        return active.running() is self._profiler

    @property
    def limit(self) -> str | None:
        """Why it ended early: space, time or size."""
        return self._profiler.prof_if.limit

    def step(self) -> bool:
        """Called after each step. Returns whether it was the last one."""
        self.steps_done += 1
        with messages.copied_to(self._on_message):
            marks.range_end(self._mark)
            self._profiler.step()
            if self.steps_done >= self.request.steps and self.running:
                self._profiler.stop()
            self._begin_mark()
        return self.steps_done >= self.request.steps

    def end(self) -> None:
        """End before the last step; the steps recorded so far are saved as a capture."""
        with messages.copied_to(self._on_message):
            marks.range_end(self._mark)
            self._profiler.stop()

    def end_with_process(self) -> None:
        """Keep what was recorded, without analysis: the interpreter ends."""
        if self.running:
            with messages.copied_to(self._on_message):
                self._profiler.end_with_process()
            active.release(self._profiler)

    def _begin_mark(self) -> None:
        """With mstx each step is a range of its own; otherwise this does nothing."""
        self._mark = marks.range_start(f"step {self.first_step + self.steps_done}", stages.current_stream())

    def _on_message(self, level: str, text: str) -> None:
        if level != "INFO":
            self.last_warning = text
        self._log(level, text)


def _profiler(request: CaptureRequest, first_step: int) -> profile:
    created = profile(
        activities=None if request.activities is None else [ProfilerActivity[name] for name in request.activities],
        schedule=schedule(wait=0, warmup=request.warmup, active=request.active, repeat=1),
        on_trace_ready=tensorboard_trace_handler(request.prof_dir, analyse_flag=request.analyse, async_mode=request.async_mode),
        experimental_config=_experimental(request.experimental),
        **request.switches,
    )
    created.first_step = first_step
    for key, value in request.metadata.items():
        created.add_metadata_json(key, json.dumps(value, ensure_ascii=False))
    return created


def _experimental(given: Any) -> _ExperimentalConfig | None:
    """Settings by their names in the file; null means not set."""
    settings = {name: given[name] for name in _EXPERIMENTAL if given.get(name) is not None}
    unknown = sorted(set(given) - set(_EXPERIMENTAL))
    if unknown:
        messages.warning(f"experimental_config: {', '.join(unknown)} is unknown and has no effect")
    if settings.get("data_simplification", True) is True and given.get("data_simplification", True) is None:
        settings["data_simplification"] = None  # here a null means off
    name = settings.get("aic_metrics")
    if name is not None:
        settings["aic_metrics"] = getattr(AiCMetrics, name, name) if isinstance(name, str) else name
    return _ExperimentalConfig(**settings) if settings else None

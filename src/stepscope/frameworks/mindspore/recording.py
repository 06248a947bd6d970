# SPDX-License-Identifier: Apache-2.0
"""One profiler's captures, one after the other: the primitives that its state machine calls (docs/formats/mindspore.md 2.5, 6)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stepscope import __version__
from stepscope.collect import budget, messages, paths
from stepscope.collect.analysis_process import analyse_capture
from stepscope.collect.current_capture import CurrentCapture
from stepscope.collect.guard import warn_on_failure
from stepscope.collect.settings import Place
from stepscope.frameworks.mindspore import sources, ticks
from stepscope.frameworks.mindspore.arguments import Parameters
from stepscope.frameworks.mindspore.step_marks import StepMarks

SUFFIX = "_ascend_ms"


class Recording(CurrentCapture):
    """Makes captures: `init` opens one, `start` and `stop` bound what is recorded, `finalize` closes it.

    Args:
        parameters: what to record.
        place: gives the folder for the next capture.
        metadata: gives the user's keys of the open capture; called when it is closed.
    """

    def __init__(self, parameters: Parameters, place: Callable[[], Place], metadata: Callable[[], Mapping[str, Any]]):
        super().__init__()
        self._parameters, self._place, self._metadata = parameters, place, metadata
        self._sources: Sequence[sources.Source] = ()
        self._failed: list[str] = []
        self._opened: ticks.Anchor | None = None
        self._marks_opened: ticks.Anchor | None = None
        self._began: ticks.Anchor | None = None
        self._ended: ticks.Anchor | None = None
        self._marks: StepMarks | None = None
        self._target = ""
        self._without_effect: list[str] = []
        self._finished: list[Path] = []

    def init(self) -> None:
        where = self._place()
        parent = paths.writable_folder(where.parent)
        budget.refuse_full_disk(parent)
        self._target = sources.device_target()
        self._without_effect = sources.without_effect(self._parameters, self._target)
        if self._without_effect:
            text = f"without an Ascend device these settings have no effect: {', '.join(self._without_effect)}"
            messages.once(messages.warning, text)
        self._sources = sources.choose(self._parameters, self._target)
        self._began = self._ended = None
        self._opened = ticks.anchor(ticks.counter())
        self._marks_opened = ticks.anchor(ticks.of_marks)
        self._failed = []
        self._folder = paths.new_capture_folder(parent, where.worker, ending=SUFFIX, utc=True)
        paths.ensure_folder(self._framework)
        self._write_info(complete=False)

    def warmup(self) -> None:
        """Nothing to prepare: MindSpore's recorders start at once."""

    def start(self) -> None:
        counter = ticks.counter()
        self._began = ticks.anchor(counter)
        running = []
        for source in self._sources:
            # A source that cannot run does not affect the others.
            if warn_on_failure(f"recording of {source.name}", _start_source, source, self._framework):
                running.append(source)
            else:
                self._failed.append(source.name)
        self._sources = running
        self._marks = StepMarks(counter, recorder=any(source.name in ("op_range", "mindspore") for source in running))
        self._recording = True
        # Written now for the case that the process is killed: without the counter's frequency its records would have no time.
        self._write_info(complete=False)

    def stop(self) -> None:
        """End recording, unless it has ended already."""
        with self._stopping:
            if not self._recording:
                return
            self._recording = False
        if self._marks is not None:
            warn_on_failure("the mark of the last step", self._marks.end)
        for source in reversed(self._sources):
            warn_on_failure(f"the end of {source.name}", source.stop)
        self._ended = ticks.anchor(ticks.counter())
        if self._marks is not None and self._framework.is_dir():
            self._marks.write(self._framework)

    def finalize(self) -> None:
        if self._folder is None:
            return
        self.stop()
        self._write_info(complete=True)
        vendor_info = self._metadata()
        if vendor_info:
            paths.write_file(
                self._folder / "profiler_metadata.json", json.dumps(vendor_info, indent=4, ensure_ascii=False).encode()
            )
        for file in self._framework.iterdir():
            if file.is_file():
                paths.narrow(file)
        self._finished.append(self._folder)

    def delete(self) -> None:
        """Remove the capture, as when training ends during the warm-up."""
        self.abandon()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._finished = [path for path in self._finished if path != self._folder]
            self._folder = None

    def abandon(self) -> None:
        """Release what recording holds, whatever state it is in; what reached the disk stays."""
        self._recording = False
        for source in reversed(self._sources):
            warn_on_failure(f"the end of {source.name}", source.stop)

    def saved(self) -> None:
        """Called after the user's handler."""
        self._finished = []

    def forget(self) -> None:
        super().forget()
        self._sources, self._marks, self._finished = (), None, []

    def analyse(self, *, background: bool = False, pretty: bool = False, steps: Sequence[int] | None = None) -> None:
        """Analyse what was finished and not yet analysed, in another process."""
        finished, self._finished = self._finished, []
        if not finished:
            messages.warning("nothing was recorded since the last analysis; there is nothing to analyse")
        for capture in finished:
            analyse_capture(capture, background=background, extra={"pretty": pretty, "steps": list(steps) if steps else None})

    def push_step(self, name: str) -> None:
        if self._recording and self._marks is not None:
            self._marks.begin(name)

    def pop_step(self) -> None:
        if self._recording and self._marks is not None:
            self._marks.end()

    @property
    def _framework(self) -> Path:
        assert self._folder is not None
        return self._folder / "FRAMEWORK"

    def _write_info(self, *, complete: bool) -> None:
        """profiler_info_{rank}.json: MindSpore's keys, and ours about clock and collector (docs/formats/mindspore.md 6)."""
        import mindspore

        assert self._folder is not None
        now = ticks.anchor(ticks.counter())
        began, ended = self._began or now, self._ended or now
        vendor_info: dict[str, Any] = {}
        for source in self._sources:
            vendor_info |= source.vendor_info if isinstance(source, sources.StockProfiler) else {}
        kept = [item.value for item in sources.recorded(self._parameters, self._target)]
        content: dict[str, Any] = {
            "profiler_parameters": self._parameters.as_info(),
            "ms_profiler_info": {"rank_id": str(rank()), "device_id": os.environ.get("DEVICE_ID", "0")},
            "cann_profiler_info": {},
            "analysis_cost_time": {},
            "ms_version": str(mindspore.__version__),
            "cann_version": "",
            "jit_level": str(mindspore.get_context("jit_level") or ""),
            **{
                key: vendor_info[key]
                for key in ("ms_version", "cann_version", "jit_level", "cann_profiler_info")
                if key in vendor_info
            },
            "start_info": {"unix_ns": began.unix_ns},
            "end_info": {"collectionTimeEnd": ended.unix_ns},
            "collector": {
                "name": "stepscope",
                "version": __version__,
                "pid": os.getpid(),
                "device": {"Ascend": "npu", "GPU": "cuda"}.get(self._target, "cpu"),
                "activities": kept,
                "without_effect": self._without_effect,
                "sources": [source.name for source in self._sources],
                "failed": self._failed,
                "complete": complete,
            },
        }
        # With a device the clock is in its own files; the counter's frequency needs two distant moments.
        if self._target != "Ascend" and self._began and self._opened:
            content["clock"] = ticks.clock(self._opened, ended)
        if any(source.name == "mstx" for source in self._sources) and self._marks_opened:
            measured = ticks.clock(self._marks_opened, ticks.anchor(ticks.of_marks))
            # Two close moments say less about the frequency than the name of the counter.
            content["mark_clock"] = measured if complete else {**measured, "freq_mhz": 1000.0}
        paths.write_file(self._folder / f"profiler_info_{rank()}.json", json.dumps(content, indent=4, ensure_ascii=False).encode())


def rank() -> int:
    """The rank of this process as its launcher says; 0 in a single process."""
    for name in ("RANK_ID", "MS_NODE_ID", "OMPI_COMM_WORLD_RANK"):
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return 0


def _start_source(source: sources.Source, framework: Path) -> bool:
    source.start(framework)
    return True

# SPDX-License-Identifier: Apache-2.0
"""The profiler that a MindSpore training script uses (docs/formats/mindspore.md 2, 3)."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from sys import getsizeof
from types import TracebackType
from typing import Any

from stepscope.collect import active, messages
from stepscope.collect.guard import Fuse, quietly, warn_on_failure
from stepscope.collect.settings import Place
from stepscope.frameworks.mindspore import arguments, training_steps
from stepscope.frameworks.mindspore.offline import analyse_offline, consecutive
from stepscope.frameworks.mindspore.recording import Recording
from stepscope.frameworks.mindspore.scheduling import ProfilerAction
from stepscope.profiler.constants import ProfilerAction as CommonAction
from stepscope.profiler.handlers import TraceHandler
from stepscope.profiler.step_mark import StepMark
from stepscope.profiler.transitions import AT_STOP, TRANSITIONS, Transition


class Profiler:
    """Records a MindSpore training run; see `arguments.Parameters` for the keywords.

    Records from construction to `stop`, or the steps that a schedule selects. `analyse` writes the files; with a schedule
    each capture goes to `on_trace_ready`. A failure of the profiler gives one warning, and training continues.
    """

    MAX_META_SIZE = 100 * 1024 * 1024

    def __init__(self, **kwargs: Any) -> None:
        self._parameters = arguments.parameters(kwargs)
        self._metadata: dict[str, Any] = {}
        self._has_started = False
        self._refused = False
        self._in_handler = False
        self._step_mark = StepMark()
        self._schedule_no_use_step: bool | None = True if self._parameters.schedule is not None else None
        self.step_num = 0
        self.current_action = self._action(0)
        self.prof_if = Recording(self._parameters, self._choose_place, self._take_metadata)
        self._fuse = Fuse(self._release)
        if self._parameters.schedule is None:
            training_steps.listen(self)
        if self._parameters.start_profile:
            self.start()

    def start(self) -> None:
        """Begin recording."""
        if self._has_started:
            messages.warning("the profiler is already running; this start is ignored")
            return
        self._refused = not active.claim(self)
        if self._refused:
            return
        self._has_started, self._fuse = True, Fuse(self._release)
        self._fuse.run("starting the profiler", self._begin)

    def stop(self) -> None:
        """End recording."""
        if self._refused:
            return
        if not self._has_started:
            messages.error("the profiler is not running; this stop is ignored")
            return
        if self._schedule_no_use_step:
            messages.warning("the profiler has a schedule, but step() was never called; the recorded data are kept")
        # Before anything that may fail or call the user's handler, so that this happens only once.
        self._has_started = False
        self._fuse.run("stopping the profiler", self._end)
        active.release(self)

    def step(self) -> None:
        """End a step and begin the next one."""
        if not self._accepts_steps():
            messages.once(messages.error, "the profiler has no schedule; step() has no effect")
            return
        if not self._has_started:
            if not self._refused:
                messages.once(messages.error, "the profiler has stopped; step() has no effect")
            return
        self._schedule_no_use_step = False
        self._fuse.run("the profiler's step", self._step)

    def analyse(
        self, offline_path: Any = None, pretty: Any = False, step_list: Any = None, mode: Any = "sync", *, async_mode: Any = None
    ) -> None:
        """Stop if still running, and write the files of the recorded steps.

        Args:
            offline_path: has no effect; `offline_analyse` takes a path.
            pretty: write JSON files over several lines.
            step_list: consecutive steps to analyse, counted from 1 at the first recorded one; default: all.
            mode: `sync` waits for the analysis, `async` does not.
            async_mode: True is the same as mode="async".
        """
        if offline_path is not None:
            messages.warning("analyse: offline_path has no effect; use Profiler.offline_analyse(path)")
        if not isinstance(mode, str) or mode not in ("sync", "async"):
            messages.warning(f"analyse: mode={mode!r} is neither 'sync' nor 'async'; using 'sync'")
            mode = "sync"
        if not isinstance(pretty, bool):
            messages.warning(f"analyse: pretty={pretty!r} is not a bool; using False")
            pretty = False
        if self._has_started and not self._in_handler:
            self.stop()
        if self._parameters.schedule is not None and not self._in_handler:
            messages.warning("the profiler has a schedule; pass on_trace_ready to analyse its captures")
            return
        background = async_mode is True or mode == "async"
        steps = consecutive("analyse", step_list)
        warn_on_failure("analyse", lambda: self.prof_if.analyse(background=background, pretty=pretty, steps=steps))

    @classmethod
    def offline_analyse(cls, path: Any, pretty: Any = False, step_list: Any = None, data_simplification: Any = False) -> None:
        """Analyse the capture at `path` or every one below it; a failure does not affect the other captures.

        Args:
            path: a `*_ascend_ms` folder or a folder of such folders.
            pretty: write JSON files over several lines.
            step_list: consecutive steps to analyse, counted from 1 at the first recorded one; default: all.
            data_simplification: remove intermediate files of the device afterwards.
        """
        warn_on_failure("offline_analyse", analyse_offline, path, pretty, step_list, data_simplification)

    def op_analyse(self, op_name: Any, device_id: Any = None) -> None:
        """Removed from MindSpore; use `stepscope top` instead."""
        del op_name, device_id
        messages.warning("op_analyse was removed; see op_statistic.csv or `stepscope top`")

    def add_metadata(self, key: Any, value: Any) -> None:
        """Add a text to profiler_metadata.json of the next capture that ends."""
        if self._texts(key, value):
            self._keep(key, value)

    def add_metadata_json(self, key: Any, value: Any) -> None:
        """Add a value, given as JSON text, to profiler_metadata.json of the next capture that ends."""
        if not self._texts(key, value):
            return
        try:
            self._keep(key, json.loads(value))
        except ValueError:
            messages.warning(f"metadata {key!r} is not valid JSON and was left out")

    def __enter__(self) -> Any:
        if not self._has_started:
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._has_started:
            self.stop()

    def __del__(self) -> None:
        quietly(self._dispose)

    def end_with_process(self) -> None:
        """The interpreter ends during a recording: keep the data, without analysis."""
        self._has_started = False
        self._fuse.run("stopping the profiler", self.prof_if.finalize)
        if self.prof_if.prof_path:
            messages.warning(f"the process ended while recording; run `stepscope analyse {self.prof_if.prof_path}`")
        else:
            messages.warning(
                f"the process ended at step {self.step_num}, before the schedule's first recorded step: nothing was recorded"
            )

    def forget_after_fork(self) -> None:
        self._has_started, self._refused = False, True
        self.prof_if.forget()

    def training_step_begins(self, number: int) -> None:
        """Model.train begins a step; marked where no schedule counts them."""
        self.prof_if.push_step(f"ProfilerStep#{number}")

    def training_step_ends(self) -> None:
        self.prof_if.pop_step()

    def _begin(self) -> None:
        self._run(TRANSITIONS[CommonAction.NONE, self._common(self.current_action)])
        self._open_step()

    def _end(self) -> None:
        self._step_mark.end(self.prof_if)
        if self._parameters.schedule is None and not self._always_ready():
            self._do("stop", "finalize")
        else:
            self._run(AT_STOP[self._common(self.current_action)])

    def _step(self) -> None:
        self._step_mark.end(self.prof_if)
        before = self.current_action
        self.step_num += 1
        self.current_action = self._action(self.step_num)
        self._run(TRANSITIONS[self._common(before), self._common(self.current_action)])
        self._open_step()

    def _run(self, transition: Transition) -> None:
        if transition.warning and self._parameters.schedule is not None:
            messages.warning(transition.warning.format(path=self.prof_if.prof_path))
        self._do(*transition.work)

    def _do(self, *work: str) -> None:
        for name in work:
            if name == "ready":
                self._ready()
            else:
                getattr(self.prof_if, name)()

    def _ready(self) -> None:
        handler = self._parameters.on_trace_ready
        self._in_handler = True
        try:
            if handler is not None:
                handler(*([self] if _accepts_argument(handler) else []))
        finally:
            self._in_handler = False
        self.prof_if.saved()

    def _open_step(self) -> None:
        if self._accepts_steps():
            self._step_mark.begin(self.prof_if, self.step_num)

    def _accepts_steps(self) -> bool:
        return self._parameters.schedule is not None

    def _always_ready(self) -> bool:
        """Whether `on_trace_ready` is called without a schedule too."""
        return False

    def _action(self, step: int) -> ProfilerAction:
        return ProfilerAction.RECORD if self._parameters.schedule is None else self._parameters.schedule(step)

    @staticmethod
    def _common(action: ProfilerAction) -> CommonAction:
        return CommonAction(action.value)

    def _choose_place(self) -> Place:
        handler = self._parameters.on_trace_ready
        if isinstance(handler, TraceHandler):
            place = handler.place()
            return place if handler.dir_name else Place(Path(self._parameters.output_path), place.worker)
        return Place(Path(self._parameters.output_path))

    def _take_metadata(self) -> dict[str, Any]:
        taken, self._metadata = self._metadata, {}
        return taken

    def _texts(self, key: Any, value: Any) -> bool:
        if isinstance(key, str) and isinstance(value, str):
            return True
        messages.warning("metadata keys and values must be str; this pair was left out")
        return False

    def _keep(self, key: str, value: Any) -> None:
        held = sum(getsizeof(name) + getsizeof(item) for name, item in self._metadata.items())
        if held + getsizeof(key) + getsizeof(value) > self.MAX_META_SIZE:
            messages.warning(f"metadata {key[:40]!r} was left out: with it metadata would exceed {self.MAX_META_SIZE >> 20} MiB")
            return
        if key in self._metadata:
            messages.warning(f"metadata {key!r} already existed and is replaced")
        self._metadata[key] = value

    def _release(self) -> None:
        self._has_started, self._refused = False, True  # silent from here on
        self.prof_if.abandon()
        active.release(self)

    def _dispose(self) -> None:
        training_steps.leave(self)
        if self._has_started:
            self.stop()
            messages.warning("the profiler object was deleted while recording; recording has stopped")


class profile(Profiler):
    """The later form: `on_trace_ready` is called at the end without a schedule too, and steps may be counted without one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{key: value for key, value in kwargs.items() if key != "output_path"})

    def _accepts_steps(self) -> bool:
        return True

    def _always_ready(self) -> bool:
        return True


def tensor_board_trace_handler() -> None:
    """Analyse the capture just finished; pass the function itself as `on_trace_ready`."""
    running = active.running()
    if isinstance(running, Profiler):
        running.analyse()


def _accepts_argument(handler: Callable[..., Any]) -> bool:
    """Whether the handler takes the profiler as argument: earlier versions of MindSpore pass none."""
    try:
        given = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return True
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(item.kind in places and item.default is inspect.Parameter.empty for item in given)

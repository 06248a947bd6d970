# SPDX-License-Identifier: Apache-2.0
"""The profilers that a training script uses (docs/formats/profiler-api.md 3-6, 10-13)."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from stepscope.collect import active, messages
from stepscope.collect.guard import Fuse, quietly, show_users_fault, warn_on_failure
from stepscope.collect.metadata import Metadata
from stepscope.collect.recording import Recording
from stepscope.collect.settings import Place, Settings, Switches
from stepscope.collect.sources import loader_workers
from stepscope.profiler import arguments, exports
from stepscope.profiler._profiler_path_creator import ProfPathCreator, export_only_place
from stepscope.profiler.constants import ExportType, ProfilerAction
from stepscope.profiler.handlers import TraceHandler
from stepscope.profiler.offline import analyse
from stepscope.profiler.scheduling import always_record, schedule
from stepscope.profiler.step_mark import StepMark
from stepscope.profiler.transitions import AT_STOP, TRANSITIONS, Transition

__all__ = ["_KinetoProfile", "analyse", "db", "profile", "text"]

# The documents call analyse(export_type=text) with bare words.
text, db = ExportType.Text, ExportType.Db


class _KinetoProfile:
    """Records between `start` and `stop`; the `export_*` methods write the results.

    Args:
        activities: ProfilerActivity members; default: everything this machine can record.
        record_shapes: record shapes and dtypes of operator inputs.
        profile_memory: record allocations and frees.
        with_stack: record the Python call stack of each operator.
        with_flops: record floating-point operations.
        with_modules: record module calls.
        experimental_config: extended settings.
        all_threads: record all threads, not only those that enable recording.
        max_seconds: end a capture after this time.
        max_bytes: end a capture at this size.
        spool_dir: write here first and move captures to their folder in the background.
    """

    def __init__(
        self,
        *,
        activities: Any = None,
        record_shapes: Any = False,
        profile_memory: Any = False,
        with_stack: Any = False,
        with_flops: Any = False,
        with_modules: Any = False,
        experimental_config: Any = None,
        custom_trace_id_callback: Any = None,
        all_threads: Any = False,
        max_seconds: Any = None,
        max_bytes: Any = None,
        spool_dir: Any = None,
    ) -> None:
        flags = {
            "record_shapes": record_shapes, "profile_memory": profile_memory, "with_stack": with_stack,
            "with_flops": with_flops, "with_modules": with_modules,
        }  # fmt: skip
        config = arguments.experimental(experimental_config)
        chosen = arguments.activities(activities, self._use_cuda)
        arguments.warn_about_unused_settings(chosen, experimental_config, config, activities)
        switches = arguments.switches(flags)
        arguments.warn_about_level_none(chosen, config, profile_memory=switches.profile_memory)
        self._metadata = Metadata()
        self._place: Place | None = None
        self.prof_if = Recording(
            Settings(
                activities=chosen,
                switches=switches,
                schedule=self._schedule_attributes(),
                experimental=config(),
                all_threads=arguments.flag("all_threads", all_threads),
                budget=arguments.budget(max_seconds, max_bytes),
                spool=arguments.spool(spool_dir),
            ),
            self._next_place,
            self._metadata,
            arguments.function("custom_trace_id_callback", custom_trace_id_callback),
        )
        self._fuse = Fuse(self._release)
        self._running = False
        self._refused = False
        self._recordings = 0  # since the last start
        self._exported = False
        self._idle = arguments.owned_by_outer_tool()
        if self._idle:
            messages.once(messages.warning, "another profiler owns the device (PROFILING_MODE is set); this one records nothing")

    _use_cuda: Any = None

    def start(self) -> None:
        """Begin recording."""
        if self._idle:
            return
        if self._running:
            messages.warning("the profiler is already running; this start is ignored")
            return
        self._refused = not active.claim(self)
        if self._refused:
            return
        self._running, self._fuse, self._recordings = True, Fuse(self._release), 0
        warn_on_failure("watching data loaders", loader_workers.watch)
        self._fuse.run("starting the profiler", self._begin)

    def stop(self) -> None:
        """End recording."""
        if self._idle or self._refused:
            return
        if not self._running:
            messages.warning("the profiler is not running; this stop is ignored")
            return
        # Before anything that may fail or call the user's handler, so that this happens only once.
        self._running = False
        self._fuse.run("stopping the profiler", self._end)
        loader_workers.unwatch()
        active.release(self)

    def discard(self) -> None:
        """End recording and remove the current capture; says nothing."""
        if self._running:
            self._running = False
            self._fuse.run("stopping the profiler", self.prof_if.delete)
            loader_workers.unwatch()
            active.release(self)

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def __del__(self) -> None:
        quietly(self._dispose)

    def add_metadata(self, key: Any, value: Any) -> None:
        """Add a text to profiler_metadata.json of each capture."""
        self._metadata.add(key, value)

    def add_metadata_json(self, key: Any, value: Any) -> None:
        """Add a value, given as JSON text, to profiler_metadata.json of each capture."""
        self._metadata.add_json(key, value)

    def export_chrome_trace(self, path: Any = None, *, output_path: Any = None) -> None:
        """Write the last capture as one timeline."""
        self._exported = True
        warn_on_failure("export_chrome_trace", exports.chrome_trace, self.prof_if, _either(path, output_path))

    def export_stacks(self, path: Any = None, metric: Any = "self_cpu_time_total", *, output_path: Any = None) -> None:
        """Write the operators' call stacks with their time, as input for flame graphs."""
        self._exported = True
        warn_on_failure("export_stacks", exports.stacks, self.prof_if, _either(path, output_path), metric)

    def export_memory_timeline(self, output_path: Any = None, device: Any = None, *, path: Any = None) -> None:
        """Write how much memory each kind of tensor held, as a picture or numbers depending on the file's suffix."""
        self._exported = True
        warn_on_failure("export_memory_timeline", exports.memory_timeline, self.prof_if, _either(output_path, path), device)

    def set_custom_trace_id_callback(self, callback: Any) -> None:
        self.prof_if.trace_id_callback = arguments.function("callback", callback)

    def get_trace_id(self) -> str:
        """The id of the current capture; empty before the first."""
        return self.prof_if.trace_id

    def end_with_process(self) -> None:
        """The interpreter ends during a recording: keep the data, without analysis."""
        self._running = False
        if self._fuse.run("stopping the profiler", self._keep_raw):
            messages.warning(f"the process ended while recording; run `stepscope analyse {self.prof_if.prof_path}`")

    def forget_after_fork(self) -> None:
        self._running, self._idle = False, True
        self.prof_if.forget()
        quietly(_silence_torch)

    def _begin(self) -> None:
        self._do("init", "start")

    def _end(self) -> None:
        self._do("stop", "finalize")

    def _do(self, *work: str) -> None:
        for name in work:
            if name == "ready":
                self._ready()
            else:
                getattr(self.prof_if, name)()
            if name == "init":
                ProfPathCreator().note(self.prof_if.prof_path)
            elif name == "start":
                self._recordings += 1

    def _ready(self) -> None:
        self.prof_if.saved()

    def _keep_raw(self) -> bool:
        recorded = self.prof_if.recording
        self.prof_if.finalize()
        return recorded

    def _release(self) -> None:
        self._running, self._refused = False, True  # silent from here on
        loader_workers.unwatch()
        self.prof_if.abandon()
        active.release(self)

    def _dispose(self) -> None:
        if self._running:
            self.stop()
        if self._place is not None and self._place.temporary:
            if self._recordings and not self._exported:
                messages.warning("the capture was removed together with its profiler: no export_* method was called before")
            self.prof_if.delete()

    def _next_place(self) -> Place:
        self._place = self._choose_place()
        return self._place

    def _choose_place(self) -> Place:
        return export_only_place(temporary=True)

    def _schedule_attributes(self) -> dict[str, Any] | None:
        return None


class profile(_KinetoProfile):
    """Records the steps that a schedule selects and passes each capture to a handler.

    Args:
        schedule: callable that returns the ProfilerAction of each step; default: record everything.
        on_trace_ready: called with the profiler when a capture is finished.
        execution_trace_observer: object whose start and stop are called with ours.
        use_cuda: record CUDA too where torch has it.
        others: as for _KinetoProfile.
    """

    def __init__(
        self,
        *,
        schedule: Any = None,
        on_trace_ready: Any = None,
        use_cuda: Any = None,
        execution_trace_observer: Any = None,
        **others: Any,
    ) -> None:
        self._schedule = arguments.function("schedule", schedule)
        self._handler = arguments.function("on_trace_ready", on_trace_ready)
        self._use_cuda = use_cuda
        self._observer = execution_trace_observer
        self._has_steps = self._schedule is not None
        self.step_num = 0
        self.first_step = 0  # the number of the first step in the steps' names
        super().__init__(**others)
        self.current_action = warn_on_failure("the schedule", self._action, 0) or ProfilerAction.NONE
        self._step_mark = StepMark()
        self._started_once = False
        self._told_of_steps = False
        self._began_at = 0  # step_num at the last start
        self._over = False  # the schedule had no cycle left at the last start

    def step(self) -> None:
        """End a step and begin the next one."""
        if not self._running:
            if not (self._idle or self._refused or self._told_of_steps):
                self._told_of_steps = True
                when = "has stopped" if self._started_once else "was not started"
                messages.warning(f"the profiler {when}; step() has no effect")
            return
        self._fuse.run("the profiler's step", self._step)

    @classmethod
    def enable_profiler_in_child_thread(
        cls,
        record_shapes: Any = False,
        profile_memory: Any = False,
        with_stack: Any = False,
        with_flops: Any = False,
        with_modules: Any = False,
    ) -> None:
        """Record the operators of the calling thread too."""
        switches = arguments.switches({
            "record_shapes": record_shapes, "profile_memory": profile_memory, "with_stack": with_stack,
            "with_flops": with_flops, "with_modules": with_modules,
        })  # fmt: skip
        warn_on_failure("enable_profiler_in_child_thread", _enable_thread, switches)

    @classmethod
    def disable_profiler_in_child_thread(cls) -> None:
        """End recording the operators of the calling thread."""
        warn_on_failure("disable_profiler_in_child_thread", _disable_thread)

    def _begin(self) -> None:
        self._began_at = self.step_num
        plan = self._schedule
        self._over = isinstance(plan, schedule) and plan.exhausted(self.step_num)
        if isinstance(plan, schedule) and self._over:
            messages.warning(f"all {plan.repeat} cycles of the schedule are over; nothing more is recorded")
        self._started_once = True
        self._run(TRANSITIONS[ProfilerAction.NONE, self.current_action])
        self._open_step()
        if self._observer is not None:
            self._observer.start()

    def _end(self) -> None:
        self._step_mark.end(self.prof_if)
        expected = isinstance(self._schedule, schedule) and self._schedule.to_the_end
        self._run(AT_STOP[self.current_action], warn=self._has_steps and not expected)
        self._warn_if_nothing_recorded()
        if self._observer is not None:
            self._observer.stop()

    def _warn_if_nothing_recorded(self) -> None:
        if self._recordings or self._over:
            return
        steps = self.step_num - self._began_at
        if isinstance(self._schedule, schedule):
            first = f"the schedule records from {self._schedule.describe_first()}, counted from 0"
        else:
            first = f"the schedule gave no step to record in steps {self._began_at} to {self.step_num}"
        if not steps:
            why, fix = "step() was never called", "call step() on the profiler after each training step"
        else:
            why = f"step() was called {steps} time{'s' if steps > 1 else ''}"
            fix = "train for more steps, or reduce these numbers"
        messages.warning(f"nothing was recorded: {first}, but {why}; {fix}")

    def _step(self) -> None:
        self._step_mark.end(self.prof_if)
        self.prof_if.stop_at_limit()
        before = self.current_action
        self.step_num += 1
        self.current_action = self._action(self.step_num)
        self._run(TRANSITIONS[before, self.current_action])
        self._open_step()

    def _run(self, transition: Transition, *, warn: bool = True) -> None:
        if transition.warning and warn:
            messages.warning(transition.warning.format(path=self.prof_if.prof_path))
        if {"warmup", "start"} & set(transition.work) and isinstance(self._handler, TraceHandler):
            self._handler.prepare()
        self._do(*transition.work)

    def _ready(self) -> None:
        if isinstance(self._handler, TraceHandler):
            self._handler(self)
        elif self._handler is not None:
            what = f"on_trace_ready raised an exception; training continues, and the capture is in {self.prof_if.prof_path}:"
            show_users_fault(what, self._handler, self)
        super()._ready()
        why = "no on_trace_ready was given" if self._handler is None else "its analysis is switched off"
        if self._handler is None or (isinstance(self._handler, TraceHandler) and not self._handler.analyse):
            path = self.prof_if.prof_path
            messages.info(f"the capture stays raw data, because {why}; next: stepscope verdict {path}")

    def _action(self, step: int) -> ProfilerAction:
        given = (self._schedule or always_record)(step)
        for action in ProfilerAction:
            # torch's own schedule returns members of torch's enum.
            if action is given or action.name == getattr(given, "name", None):
                return action
        messages.once(
            messages.warning, f"the schedule returned {given!r}, which is not a ProfilerAction; keeping the previous action"
        )
        return getattr(self, "current_action", ProfilerAction.NONE)

    def _open_step(self) -> None:
        if self._has_steps:
            self._step_mark.begin(self.prof_if, self.first_step + self.step_num)

    def _choose_place(self) -> Place:
        if self._handler is None:
            return export_only_place(temporary=False)
        if isinstance(self._handler, TraceHandler):
            return self._handler.place()
        return ProfPathCreator().place()

    def _schedule_attributes(self) -> dict[str, Any]:
        return {name: value for name, value in getattr(self._schedule, "__dict__", {}).items() if isinstance(value, int)}

    def _keep_raw(self) -> bool:
        self._step_mark.end(self.prof_if)
        recorded = super()._keep_raw()
        self._warn_if_nothing_recorded()
        return recorded


def _enable_thread(switches: Switches) -> None:
    running = active.running()
    if isinstance(running, _KinetoProfile):
        running.prof_if.enable_child_thread(switches)
    else:
        messages.once(messages.warning, "no profiler is recording; this thread is not recorded")


def _disable_thread() -> None:
    running = active.running()
    if isinstance(running, _KinetoProfile):
        running.prof_if.disable_child_thread()


def _silence_torch() -> None:
    """In a forked child torch still thinks that its profiler runs; its records would only fill memory."""
    import torch

    torch.autograd._enable_record_function(False)


def _either(first: Any, second: Any) -> Any:
    return second if first is None else first

# SPDX-License-Identifier: Apache-2.0
"""Operators by torch's own profiler (Kineto): available everywhere, but in memory until stop.

Also the only tier that sees CUDA. Its JSON is in FRAMEWORK under a name that no other reader picks up
(docs/formats/framework.md 1.2).
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

from stepscope.collect import messages, paths
from stepscope.collect.guard import quietly
from stepscope.collect.settings import Settings, Switches
from stepscope.collect.tiers.choice import TierReport
from stepscope.collect.tiers.driven import DrivenTier
from stepscope.errors import CaptureError

TRACE = "x.kineto_trace.json"
FLOPS = "x.kineto_flops.csv"


class KinetoTier(DrivenTier):
    name = "kineto"
    streams = False

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self._folder: Path | None = None

    def prepare(self, capture: Path) -> None:
        if self._profiler is not None:
            return
        self._folder = capture / "FRAMEWORK"
        paths.ensure_folder(self._folder)
        _refuse_second_profiler()
        _guard_forks()
        self._profiler = _profiler(self._settings)
        self._profiler.prepare_trace()

    def start(self) -> None:
        self._profiler.start_trace()
        self._started = True

    def stop(self) -> TierReport:
        profiler, started = self._detach()
        if not started:
            return TierReport()
        profiler.stop_trace()
        assert self._folder is not None
        target = self._folder / TRACE
        _save(profiler.profiler.kineto_results, target)
        if self._settings.switches.with_flops:
            _write_flops(self._folder / FLOPS, profiler.profiler.kineto_results.events())
        return TierReport()

    def silence(self) -> None:
        """Not possible from another thread: records go on until the next step."""

    def discard(self) -> None:
        """End without results; torch releases its profiler only after it has run."""
        profiler, started = self._detach()
        if profiler is None:
            return
        if not started:
            profiler.start_trace()
        profiler.stop_trace()

    def enable_child_thread(self, switches: Switches) -> None:
        """Not possible: torch's own function for it leaves the main thread's callback behind, which then costs time for ever."""
        if not self._settings.all_threads:
            text = "torch's own profiler cannot record a child thread; the native observer can, or profile(all_threads=True)"
            messages.once(messages.warning, text)

    def disable_child_thread(self) -> None:
        """Nothing was enabled."""


def _save(results: Any, target: Path) -> None:
    """Write the trace, whole or not at all: torch does not say when the disk refuses a part of it."""
    # Without .json while it is written: a killed export must not look like a trace.
    partial = target.with_name(f"{TRACE}.partial")
    try:
        results.save(str(partial))
        if not _ends(partial):
            raise CaptureError(
                "torch's profiler could not write its trace",
                where=str(target),
                cause="the disk is full or refuses to be written to; torch does not say which",
                fix="free some space or choose another folder, and record again",
            )
        paths.narrow(partial)
        partial.replace(target)
    finally:
        for left in (partial, partial.with_name(f"{partial.name}.tmp")):  # torch's own name while it writes
            left.unlink(missing_ok=True)


def _ends(trace: Path) -> bool:
    """Whether the file is there and has the bracket that closes it."""
    if not trace.is_file():
        return False
    with trace.open("rb") as file:
        file.seek(max(0, trace.stat().st_size - 64))
        end = file.read().rstrip()
    return end.endswith(b"}") and not end.endswith(b"  }")  # indented, it closes an event or its arguments


@functools.cache
def _guard_forks() -> None:
    """From its first use on Kineto has a thread that waits on a condition variable.

    A forked child has the variable without the thread, and destroying it at exit waits for ever. So children leave
    without running what was registered before the fork, once their own handlers and Python's are done.
    """
    os.register_at_fork(after_in_child=lambda: quietly(_leave_early))


def _leave_early() -> None:
    libc = ctypes.CDLL(None)
    # Run in reverse order: flush C's files, then end with the status that `exit` was given. Functions of C, since Python
    # is gone by then.
    libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
    libc.__cxa_atexit(ctypes.cast(libc.fflush, ctypes.c_void_p), None, None)


def _write_flops(target: Path, events: Any) -> None:
    """Operations by the id that the trace gives its operators."""
    lines = [f"{event.correlation_id()},{event.flops()}\n" for event in events if event.flops()]
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, paths.FILE_MODE), "w") as file:
        file.writelines(["external_id,flops\n", *lines])


def _refuse_second_profiler() -> None:
    import torch

    # Starting another one would end the first silently.
    if torch.autograd._profiler_enabled():
        raise CaptureError("torch's own profiler is already running", fix="use one profiler at a time, or the native observer")


def _profiler(settings: Settings) -> Any:
    from torch.profiler import ProfilerActivity, _KinetoProfile

    switches = settings.switches
    names = [name for name in settings.activities if name in ("CPU", "CUDA")]
    # Only the Python tracer shows modules of eager code, and it comes with stacks.
    stacks = switches.with_stack or switches.with_modules
    return _KinetoProfile(
        activities=[getattr(ProfilerActivity, name) for name in names],
        record_shapes=switches.record_shapes or bool(settings.experimental.get("record_op_args")),
        profile_memory=switches.profile_memory,
        with_stack=stacks,
        with_flops=switches.with_flops,
        with_modules=switches.with_modules,
        # The counts of operations are in the events only, not in the trace.
        experimental_config=_experimental(trace_only=not (stacks or switches.with_flops), profile_all_threads=settings.all_threads),
    )


def _experimental(**wanted: bool) -> Any:
    """The options of newer torch versions, without those that this version does not know."""
    from torch._C._profiler import _ExperimentalConfig

    chosen: dict[str, Any] = {name: value for name, value in wanted.items() if value}
    while True:
        try:
            return _ExperimentalConfig(**chosen)
        except TypeError:
            if not chosen:
                raise
            chosen.popitem()

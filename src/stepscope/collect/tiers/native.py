# SPDX-License-Identifier: Apache-2.0
"""Operators by our own observer: records stream to the FRAMEWORK files while training runs."""

from __future__ import annotations

import threading
from pathlib import Path

from stepscope.collect import messages, paths, simulated
from stepscope.collect.settings import Settings, Switches
from stepscope.collect.tiers.choice import TierReport
from stepscope.collect.tiers.observer import Observer, ObserverOptions, StopReport, load_observer


class NativeTier:
    name = "native"
    streams = True

    def __init__(self, settings: Settings, observer: Observer):
        self._settings, self._observer = settings, observer
        self._prepared = self._started = False
        self._threads: set[int] = set()
        switches = settings.switches
        # Memory and Python calls are seen through state of the thread that started.
        self.stops_anywhere = not (switches.profile_memory or switches.with_stack or switches.with_modules)

    @classmethod
    def load(cls, settings: Settings) -> NativeTier | str:
        """The tier, or the reason why it is not available."""
        observer = load_observer()
        return observer if isinstance(observer, str) else cls(settings, observer)

    def prepare(self, capture: Path) -> None:
        if self._prepared:
            return
        framework = capture / "FRAMEWORK"
        paths.ensure_folder(framework)
        self._observer.prepare(framework, self._options(self._settings.switches))
        self._prepared = True

    def start(self) -> None:
        self._observer.start()
        self._started = True
        if self._settings.switches.profile_memory and not self._observer.report_memory(True):
            text = (
                "torch's own profiler is running on this thread: until it ends, memory is reported to it and not to this profiler"
            )
            messages.once(messages.warning, text)

    def stop(self) -> TierReport:
        if not self._prepared:
            return TierReport()
        self._prepared = self._started = False
        if self._observer.phase == "idle":
            return TierReport()  # it has already stopped, as it does when the process ends
        return _report(self._observer.stop())

    def silence(self) -> None:
        self._observer.silence()

    def flush(self) -> None:
        self._observer.flush()

    def give_way(self) -> str | None:
        lost = ["memory"] if self._settings.switches.profile_memory and self._observer.report_memory(False) is False else []
        return ", ".join(lost)

    def take_back(self) -> None:
        if self._settings.switches.profile_memory:
            self._observer.report_memory(True)

    def discard(self) -> None:
        self.stop()

    def push(self, name: str) -> None:
        self._observer.push_range(name)

    def pop(self) -> None:
        self._observer.pop_range()

    def enable_child_thread(self, switches: Switches) -> None:
        thread = threading.get_ident()
        if thread in self._threads:
            messages.warning("this thread is already being recorded; its first settings stay")
            return
        self._observer.enable_child_thread(self._options(switches))
        self._threads.add(thread)

    def disable_child_thread(self) -> None:
        if threading.get_ident() in self._threads:
            self._threads.remove(threading.get_ident())
            self._observer.disable_child_thread()

    def _options(self, switches: Switches) -> ObserverOptions:
        return ObserverOptions(
            record_shapes=switches.record_shapes or bool(self._settings.experimental.get("record_op_args")),
            profile_memory=switches.profile_memory,
            with_stack=switches.with_stack,
            with_modules=switches.with_modules,
            with_flops=switches.with_flops,
            all_threads=self._settings.all_threads,
            host_memory_only=simulated.is_recorded(self._settings),
            max_bytes=self._settings.budget.max_bytes,
        )


def _report(report: StopReport) -> TierReport:
    return TierReport(
        dropped={"records": report.dropped} if report.dropped else {},
        limit=report.limit,
        collector={"operators": report.operators, "bytes": report.bytes},
    )

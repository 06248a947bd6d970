# SPDX-License-Identifier: Apache-2.0
"""Operators by our own observer: records stream to the FRAMEWORK files while training runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stepscope.collect import paths
from stepscope.collect.settings import Settings, Switches
from stepscope.collect.tiers import TierReport


class NativeTier:
    name = "native"
    streams = True

    def __init__(self, settings: Settings, observer: Any, options: Any):
        self._settings, self._observer, self._options = settings, observer, options
        self._prepared = self._started = False

    @classmethod
    def load(cls, settings: Settings) -> NativeTier | str:
        """The tier, or why there is none."""
        try:
            from stepscope.collect.observer import ObserverOptions, load_observer
        except ImportError as problem:
            return str(problem)
        observer = load_observer()
        if isinstance(observer, str):
            return observer
        switches = settings.switches
        options = ObserverOptions(
            record_shapes=switches.record_shapes or bool(settings.experimental.get("record_op_args")),
            profile_memory=switches.profile_memory,
            with_stack=switches.with_stack,
            with_modules=switches.with_modules,
            with_flops=switches.with_flops,
            all_threads=settings.all_threads,
            max_bytes=settings.budget.max_bytes,
        )
        return cls(settings, observer, options)

    def prepare(self, capture: Path) -> None:
        if self._prepared:
            return
        framework = capture / "FRAMEWORK"
        paths.make_folder(framework)
        self._observer.prepare(framework, self._options)
        self._prepared = True

    def start(self) -> None:
        self._observer.start()
        self._started = True

    def stop(self) -> TierReport:
        if not self._started:
            return TierReport()
        self._started = False
        return _report(self._observer.stop())

    def discard(self) -> None:
        if self._started:
            self.stop()

    def push(self, name: str) -> None:
        self._observer.push_range(name)

    def pop(self) -> None:
        self._observer.pop_range()

    def enable_child_thread(self, switches: Switches) -> None:
        self._observer.enable_child_thread()

    def disable_child_thread(self) -> None:
        self._observer.disable_child_thread()


def _report(report: Any) -> TierReport:
    dropped = getattr(report, "dropped", None) or {}
    counted = {"records": dropped} if isinstance(dropped, int) else dict(dropped)
    return TierReport(dropped=counted, limit=getattr(report, "limit", None))

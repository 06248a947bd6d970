# SPDX-License-Identifier: Apache-2.0
"""Which collector records the operators: our observer, torch's profiler or the vendor's; by default the best available."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from stepscope.collect import messages, simulated
from stepscope.collect.settings import Settings, Switches

NAMES = ("native", "kineto", "ascend")


@dataclass(frozen=True)
class TierReport:
    """The outcome of a recording, for profiler_info.json."""

    dropped: dict[str, int] = field(default_factory=dict)
    limit: str | None = None  # why the tier itself stopped early
    info: dict[str, Any] = field(default_factory=dict)  # values that the tier knows better, merged over ours
    collector: dict[str, Any] = field(default_factory=dict)  # what it reports about itself


class Tier(Protocol):
    """Records operators into the FRAMEWORK folder of a capture."""

    name: str
    streams: bool  # records reach the disk while it runs
    stops_anywhere: bool  # threads other than the one that started it may stop it

    def prepare(self, capture: Path) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> TierReport: ...
    def silence(self) -> None: ...  # from any thread: no more records; `stop` follows at the next step
    def flush(self) -> None: ...  # from any thread: what was recorded until now reaches the disk, if it streams
    def give_way(self) -> str | None: ...  # torch's profiler starts on this thread; what is lost by it, or None when we must stop
    def take_back(self) -> None: ...  # it has ended
    def discard(self) -> None: ...
    def push(self, name: str) -> None: ...
    def pop(self) -> None: ...
    def enable_child_thread(self, switches: Switches) -> None: ...
    def disable_child_thread(self) -> None: ...


def choose(settings: Settings) -> Tier:
    """The tier for these settings; `STEPSCOPE_COLLECTOR` or `settings.tier` forces one."""
    from stepscope.collect.tiers import ascend
    from stepscope.collect.tiers.kineto import KinetoTier
    from stepscope.collect.tiers.marks_only import MarksOnlyTier
    from stepscope.collect.tiers.native import NativeTier

    forced = settings.tier or os.environ.get("STEPSCOPE_COLLECTOR") or None
    if forced not in (None, *NAMES):
        messages.once(messages.warning, f"STEPSCOPE_COLLECTOR={forced} is ignored; choose one of {', '.join(NAMES)}")
        forced = None
    if forced == "ascend" or (forced is None and "NPU" in settings.activities and ascend.available()):
        return ascend.AscendTier(settings)
    if settings.ranges_only or (simulated.is_recorded(settings) and "CPU" not in settings.activities):
        return MarksOnlyTier(folder=settings.marks)  # the device's records come from the device itself
    if forced == "kineto":
        return KinetoTier(settings)
    if "CUDA" in settings.activities:
        return KinetoTier(settings)  # Kineto records the kernels of a GPU, and its operators with them
    native = NativeTier.load(settings)
    if isinstance(native, str):
        messages.once(messages.info, f"recording with torch's profiler (Kineto); the native observer is not available: {native}")
        return KinetoTier(settings)
    return native

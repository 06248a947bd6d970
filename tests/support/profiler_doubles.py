"""Stand-ins for what records operators, so that the profiler is tested without torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.collect.tiers.choice import TierReport


class NotingTier:
    """Notes what it is told in `calls`; leaves one file, as a real one does."""

    name = "noting"
    streams = True
    stops_anywhere = True

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls
        self.folder: Path | None = None

    def prepare(self, capture: Path) -> None:
        if self.folder is None:
            self.folder = capture
            (capture / "FRAMEWORK").mkdir(mode=0o750, exist_ok=True)
            self.calls.append("prepare")

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> TierReport:
        self.calls.append("stop")
        return TierReport()

    def silence(self) -> None:
        self.calls.append("silence")

    def flush(self) -> None:
        """Has nothing to write."""

    def give_way(self) -> str | None:
        return ""

    def take_back(self) -> None:
        """Has given up nothing."""

    def discard(self) -> None:
        self.calls.append("discard")

    def push(self, name: str) -> None:
        self.calls.append(f"push {name}")

    def pop(self) -> None:
        self.calls.append("pop")

    def enable_child_thread(self, switches: Any) -> None:
        self.calls.append(f"enable {switches.with_modules}")

    def disable_child_thread(self) -> None:
        self.calls.append("disable")


class NotingRecording:
    """In the place of `prof.prof_if`: notes the primitives that the state machine calls."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.calls: list[str] = []
        self.prof_path = "/capture"
        self.recording = False
        self.trace_id = ""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: self.calls.append(" ".join([name, *map(str, arguments)]))

    def primitives(self) -> list[str]:
        return [call for call in self.calls if call.split()[0] not in ("push_step", "pop_step", "stop_at_limit")]

# SPDX-License-Identifier: Apache-2.0
"""Limits of a capture: seconds, bytes and free disk space, watched by one thread."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from stepscope.collect.settings import Budget
from stepscope.errors import CaptureError

LEAST_FREE = 256 << 20
INTERVAL_SECONDS = 0.5


def least_free_bytes() -> int:
    """Disk space that a capture leaves free; STEPSCOPE_MIN_FREE_BYTES changes it."""
    text = os.environ.get("STEPSCOPE_MIN_FREE_BYTES", "")
    return int(text) if text.isdigit() else LEAST_FREE


def refuse_full_disk(folder: Path) -> None:
    """
    Raises:
        CaptureError: too little disk space is left to begin a capture.
    """
    free = shutil.disk_usage(folder).free
    if free < least_free_bytes():
        raise CaptureError(
            "too little disk space left for a capture",
            where=str(folder),
            cause=f"{free >> 20} MiB free, {least_free_bytes() >> 20} MiB must stay free",
            fix="free some space, choose another folder, or set STEPSCOPE_MIN_FREE_BYTES",
        )


class Watch:
    """Checks one capture's limits until stopped; the first one exceeded is kept in `limit` and passed to `on_limit`."""

    def __init__(self, capture: Path, budget: Budget, on_limit: Callable[[str], None]):
        self.limit: str | None = None
        self._capture, self._budget, self._on_limit = capture, budget, on_limit
        self._until = time.monotonic() + budget.max_seconds if budget.max_seconds is not None else None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stepscope-budget", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def exceeded(self) -> str | None:
        """The limit that is exceeded now, in words."""
        if self._until is not None and time.monotonic() >= self._until:
            return f"max_seconds={self._budget.max_seconds:g}"
        if self._budget.max_bytes is not None and _size(self._capture) >= self._budget.max_bytes:
            return f"max_bytes={self._budget.max_bytes}"
        if shutil.disk_usage(self._capture).free < least_free_bytes():
            return "the disk is nearly full"
        return None

    def _run(self) -> None:
        while not self._end.wait(self._pause()):
            try:
                self.limit = self.exceeded()
            except OSError:
                return  # the folder is gone; whoever writes there will find out
            if self.limit:
                self._on_limit(self.limit)
                return

    def _pause(self) -> float:
        if self._until is None:
            return INTERVAL_SECONDS
        return max(0.0, min(INTERVAL_SECONDS, self._until - time.monotonic()))


def _size(folder: Path) -> int:
    return sum((Path(root) / name).stat().st_size for root, _, names in os.walk(folder) for name in names)

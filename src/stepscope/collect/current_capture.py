# SPDX-License-Identifier: Apache-2.0
"""What every recording has: the folder of its capture, and whether it records now."""

from __future__ import annotations

import threading
from pathlib import Path


class CurrentCapture:
    def __init__(self) -> None:
        self._folder: Path | None = None
        self._recording = False
        self._stopping = threading.Lock()

    def forget(self) -> None:
        """Nothing here belongs to this process any more: it was forked from the one that records."""
        self._folder, self._recording = None, False
        self._stopping = threading.Lock()  # may have been held by the watching thread, which the child does not have

    @property
    def prof_path(self) -> str:
        """The folder of the current capture, or of the last one."""
        return str(self._folder) if self._folder else ""

    @property
    def recording(self) -> bool:
        return self._recording

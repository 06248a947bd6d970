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

    @property
    def prof_path(self) -> str:
        """The folder of the current capture, or of the last one."""
        return str(self._folder) if self._folder else ""

    @property
    def recording(self) -> bool:
        return self._recording

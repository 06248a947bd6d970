# SPDX-License-Identifier: Apache-2.0
"""Where captures go, and the object through which custom handlers set it (docs/formats/profiler-api.md 8.4, 9)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from stepscope.collect.settings import Place

EXPORT_ONLY = "export_only_prof_dir"


class ProfPathCreator:
    """One per process: holds the arguments of `init` and the folder of the last capture."""

    _only: ProfPathCreator | None = None
    _initialised: bool
    _worker: str | None
    _dir: str | None
    _capture: str

    def __new__(cls) -> ProfPathCreator:
        if cls._only is None:
            cls._only = super().__new__(cls)
            cls._only._initialised, cls._only._worker, cls._only._dir, cls._only._capture = False, None, None, ""
        return cls._only

    def init(self, worker_name: str | None = None, dir_name: str | None = None, **_others: Any) -> None:
        """Set worker name and folder of later captures, for profilers with a custom handler."""
        self._initialised, self._worker, self._dir = True, worker_name, dir_name

    def get_prof_dir(self) -> str:
        """The folder of the current capture."""
        return self._capture

    def note(self, capture: str) -> None:
        self._capture = capture

    def place(self) -> Place:
        """For a custom handler: the arguments of `init`, else the current folder."""
        return handler_place(self._dir, self._worker) if self._initialised else Place(Path.cwd())


def handler_place(dir_name: str | None, worker_name: str | None) -> Place:
    if dir_name:
        return Place(Path(dir_name), worker_name)
    return Place(_work_path() or Path.cwd(), worker_name)


def export_only_place(*, temporary: bool) -> Place:
    """For profilers without a handler; a temporary folder is removed with the profiler."""
    work = _work_path()
    return Place(work) if work else Place(Path.cwd() / EXPORT_ONLY, temporary=temporary)


def _work_path() -> Path | None:
    text = os.environ.get("ASCEND_WORK_PATH")
    return Path(text) / "profiling_data" if text else None

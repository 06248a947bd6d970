# SPDX-License-Identifier: Apache-2.0
"""The two logs of a process beside profiler_config.json: what it did, how the file changed (docs/formats/profiler-api.md 17.1).

Lines are kept until the watching thread writes them: a folder that hangs or is full delays nobody else.
"""

from __future__ import annotations

import io
import logging
import logging.handlers
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from stepscope.collect import messages, paths

LOG_FOLDER = "log"
LARGEST, MAX_PENDING = 200 * 1024, 1000


class Journal:
    """Logs `dp_*` (actions) and `monitor_dp_*` (the config file) of one process.

    Args:
        folder: where profiler_config.json is; None writes no logs.
        rank: shown in the files' names; -1 if unknown.
        wake: called when there is something to write.
    """

    def __init__(self, folder: Path | None, rank: int, wake: Callable[[], None] = lambda: None):
        self._pending: deque[tuple[bool, float, str, str]] = deque(maxlen=MAX_PENDING)
        self._wake = wake
        self._files = None
        if folder is not None:
            name = f"dp_{socket.gethostname()}_{os.getpid()}_rank_{rank}.log"
            self._files = (_LogFile(folder / LOG_FOLDER / name), _LogFile(folder / LOG_FOLDER / f"monitor_{name}"))

    def action(self, level: str, text: str) -> None:
        self._pending.append((False, time.time(), level, text))
        self._wake()

    def config_file(self, level: str, text: str) -> None:
        self._pending.append((True, time.time(), level, text))

    def flush(self) -> None:
        while self._pending:
            of_file, moment, level, text = self._pending.popleft()
            if self._files is not None:
                self._files[of_file].add(moment, level, text)

    def close(self) -> None:
        self.flush()
        for file in self._files or ():
            file.close()


class _LogFile(logging.handlers.RotatingFileHandler):
    def __init__(self, path: Path):
        paths.ensure_folder(path.parent)
        super().__init__(path, maxBytes=LARGEST, backupCount=1, encoding="utf-8", delay=True)
        self._pid = os.getpid()
        self.setFormatter(logging.Formatter("%(asctime)s [%(levelname)s] [%(process)d] dynamic_profile: %(message)s"))

    def add(self, moment: float, level: str, text: str) -> None:
        record = logging.LogRecord("", logging.getLevelName(level), "", 0, " ".join(text.split()), None, None)
        record.created, record.msecs = moment, moment % 1 * 1000
        self.handle(record)

    def flush(self) -> None:
        # At exit `logging` asks for it in a forked child too, where the watching thread may have left the file locked.
        if self._pid == os.getpid():
            super().flush()

    def close(self) -> None:
        if self._pid == os.getpid():
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:
        messages.once(messages.warning, f"{self.baseFilename} cannot be written; its messages are lost")

    def _open(self) -> io.TextIOWrapper:
        number = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, paths.FILE_MODE)
        return io.TextIOWrapper(os.fdopen(number, "ab"), encoding=self.encoding)

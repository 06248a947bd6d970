# SPDX-License-Identifier: Apache-2.0
"""Dynamic profiling of one process: its worker, its watching thread and its logs."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepscope.collect import messages, metadata, paths
from stepscope.control import board, config, trust
from stepscope.control.agreement import agreed_start
from stepscope.dynamic_profile.capture import Capture
from stepscope.dynamic_profile.journal import LOG_FOLDER, Journal
from stepscope.dynamic_profile.monitor import Monitor
from stepscope.dynamic_profile.worker import Worker
from stepscope.errors import CaptureError


class Session:
    """Created by `init`, or by `start` with a file if `init` was not called.

    Args:
        path: the folder of profiler_config.json; None watches nothing.
    """

    def __init__(self, path: Any = None):
        self._folder = None if path is None else _folder(path)
        self.monitor: Monitor | None = None
        self._journal = Journal(None if _links_elsewhere(self._folder) else self._folder, _rank(), self._wake)
        log = self._journal.action
        self.worker = Worker(lambda request, step: Capture(request, step, log), log, _rank, metadata.world_size)
        self.step = self.worker.step
        if self._folder is not None:
            self._watch(self._folder, Path(os.path.abspath(os.path.expanduser(path))))

    @property
    def folder(self) -> Path | None:
        return self._folder

    def start(self, path: Any) -> None:
        request = self._request(path)
        if request is not None:
            self.worker.start(request)

    def end(self) -> None:
        self.worker.finish()
        if self.monitor is not None:
            self.monitor.end()

    def _watch(self, folder: Path, given: Path) -> None:
        named = given.parent if given.name == config.CONFIG_FILE else given
        if trust.distrust_of_folder(named) is None:
            created = make_template(folder)
            with contextlib.suppress(OSError):
                board.clear_leftovers(folder)
            self._journal.action("INFO", f"init: {folder / config.CONFIG_FILE} {'created' if created else 'exists'}")
        identity = board.of_this_process(_rank(), metadata.world_size())
        self.monitor = Monitor(
            folder,
            self.worker,
            self._journal,
            lambda: replace(identity, rank=_rank(), world_size=metadata.world_size()),
            since_ns=_process_start_ns(),
            agree=lambda key, request: _common_step(folder, key, identity.job, request),
            poll_seconds=_fixed_poll(),
            distrust=lambda: trust.distrust_of_folder(named),
        )
        # Now, so that a file written for this job counts from its first step on.
        self.monitor.read_config()
        self.monitor.start()

    def _request(self, path: Any) -> config.CaptureRequest | None:
        """The request in the given file, for every rank; if that is unusable, the one in the file of `init`, for its ranks."""
        for given in (path, self._folder):
            if given is None:
                continue
            try:
                return self._followed() if given is self._folder else _read(given, every_rank=True)
            except CaptureError as problem:
                self._journal.action("ERROR", f"dp.start: {problem}")
                messages.error(f"dp.start: {problem}")
                if given is path and self._folder is not None:
                    messages.info(f"dp.start uses the file of dp.init instead: {self._folder / config.CONFIG_FILE}")
        if path is None and self._folder is None:
            messages.error("dp.start needs a config file, or call dp.init first")
        return None

    def _followed(self) -> config.CaptureRequest:
        """The request in the watched folder, under the rules for what stands there."""
        assert self._folder is not None
        distrusted = trust.distrust_of_folder(self._folder)
        request = _read(self._folder)
        refusal = distrusted or trust.outside_roots(request.prof_dir)
        if refusal is not None:
            raise CaptureError("the request is not followed", where=str(self._folder), cause=refusal)
        return request

    def _wake(self) -> None:
        if self.monitor is not None:
            self.monitor.wake()


def _links_elsewhere(folder: Path | None) -> bool:
    return folder is not None and (folder / LOG_FOLDER).is_symlink()


def make_template(folder: Path) -> bool:
    """Create profiler_config.json if missing; returns whether it did. Never replaces one."""
    target = folder / config.CONFIG_FILE
    if target.exists():
        return False
    partial = folder / f".{config.CONFIG_FILE}.{board.of_this_process(-1, 1).file_name()}"
    try:
        paths.write_file(partial, config.template())
        try:
            _place(partial, target)
        except FileExistsError:
            return False
        finally:
            partial.unlink(missing_ok=True)
    except OSError as problem:
        raise CaptureError(
            f"cannot create {config.CONFIG_FILE}",
            where=str(folder),
            cause=problem.strerror,
            fix="free space, or choose another folder",
        ) from problem
    return True


def _place(partial: Path, target: Path) -> None:
    """Unlike a rename, a link does not replace a file that another rank has just created; not every file system has links."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise
    except OSError:
        if not target.exists():
            os.replace(partial, target)


def _common_step(folder: Path, key: str, job: str, request: config.CaptureRequest) -> int | None:
    single = metadata.world_size() == 1 or (request.ranks is not None and len(request.ranks) == 1)
    return None if single else agreed_start(folder, key, job, request.ranks)


def _folder(path: Any) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise CaptureError(f"{path!r} is not a path", fix="give the folder for profiler_config.json")
    given = Path(os.path.expanduser(path))
    return paths.writable_folder(given.parent if given.name == config.CONFIG_FILE else given)


def _read(path: Any, *, every_rank: bool = False) -> config.CaptureRequest:
    """
    Raises:
        CaptureError: the file is missing, or not a JSON object.
    """
    file = paths.resolve_path(path)
    if file.is_dir():
        file = file / config.CONFIG_FILE
    try:
        return config.parse(file.read_bytes(), str(file), every_rank=every_rank)
    except OSError as problem:
        raise CaptureError("cannot read the file", where=str(file), cause=problem.strerror, fix="check the path") from problem


def _rank() -> int:
    text = str(metadata.rank())
    return int(text) if text.isdigit() else -1


def _process_start_ns() -> int:
    """When this process started, in Unix time; now where the system does not tell."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return time.time_ns()
    return time.time_ns() - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 10**9 // os.sysconf("SC_CLK_TCK"))


def _fixed_poll() -> float | None:
    text = os.environ.get("STEPSCOPE_POLL_SECONDS")
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if seconds > 0:
        return seconds
    messages.warning(f"STEPSCOPE_POLL_SECONDS={text} is not a positive number; it has no effect")
    return None

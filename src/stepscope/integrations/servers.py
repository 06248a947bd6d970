# SPDX-License-Identifier: Apache-2.0
"""What the plugins of inference servers share: a capture from /start_profile to /stop_profile, as STEPSCOPE_PROFILE says.

`steps` of the plan has no effect here: the server's requests, delays and counts decide.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from typing import Any

from stepscope.collect import active, messages
from stepscope.collect.guard import Fuse, warn_on_failure
from stepscope.integrations import script
from stepscope.integrations.plan import DEFAULT_FOLDER, Plan, parse
from stepscope.profiler.profiler import profile
from stepscope.profiler.scheduling import schedule

VARIABLE = "STEPSCOPE_PROFILE"
_ENDLESS = 1 << 40  # steps


def install(server: str, patch: Callable[[Plan], str | None]) -> None:
    """Install a plugin if the variable asks for it; nothing here raises into the server.

    Args:
        server: the name of its package.
        patch: puts our profiler in; gives what it misses where the server is not as known.
    """
    text = os.environ.get(VARIABLE)
    if text:
        warn_on_failure(f"the plugin for {server}", _install, server, text, patch)


def _install(server: str, text: str, patch: Callable[[Plan], str | None]) -> None:
    try:
        plan = parse(text)
    except ValueError as problem:
        messages.warning(f"{VARIABLE}={text} is not understood, so {server} keeps its own profiler: {problem}")
        return
    missing = patch(plan)
    if missing:
        messages.warning(f"{server} {_version(server)} is not known: it has no {missing}; it keeps its own profiler")
        return
    script.stand_down()


def replace_everywhere(package: str, name: str, old: Any, new: Any) -> None:
    """Put a class in the place of another, also in modules that have imported it by name."""
    for module_name, module in list(sys.modules.items()):
        if (module_name == package or module_name.startswith(f"{package}.")) and vars(module).get(name) is old:
            setattr(module, name, new)


class RequestedCapture:
    """One capture at a time, begun and ended by the server; has the methods that servers call of torch's profiler.

    Args:
        plan: what to record.
        folder: where the server writes its traces; used where the plan names no folder.
    """

    def __init__(self, plan: Plan, folder: Any = None):
        local = isinstance(folder, (str, os.PathLike)) and "://" not in str(folder) and bool(str(folder))
        self._plan = replace(plan, folder=str(folder)) if local and plan.folder == DEFAULT_FOLDER else plan
        self._profiler: profile | None = None
        self.in_batch = False  # for servers that say when a batch begins
        self._fuse = Fuse(self._release)

    @property
    def running(self) -> bool:
        return self._profiler is not None and active.running() is self._profiler

    def start(self) -> None:
        self._fuse.run("starting the capture", self._start)

    def step(self) -> None:
        """A batch has been processed."""
        if self.running:
            self._fuse.run("ending a step", self._step)

    def stop(self) -> None:
        if self.running:
            self._fuse.run("ending the capture", self._stop)

    def export_chrome_trace(self, path: str) -> None:
        """The capture is complete; `stepscope convert` writes traces from it."""

    def _start(self) -> None:
        # Without a schedule steps are not marked; the server says when this one ends.
        self._profiler = self._plan.profiler(self._plan.handler(), None, schedule(wait=0, active=_ENDLESS, repeat=1))
        self._profiler.start()

    def _step(self) -> None:
        assert self._profiler is not None
        self._profiler.step()

    def _stop(self) -> None:
        assert self._profiler is not None
        self._profiler.stop()

    def _release(self) -> None:
        if self._profiler is not None:
            warn_on_failure("discarding the capture", self._profiler.discard)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of unknown version"

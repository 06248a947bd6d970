# SPDX-License-Identifier: Apache-2.0
"""What happens to a finished capture (docs/formats/profiler-api.md 8)."""

from __future__ import annotations

import os
from typing import Any

from stepscope.collect import messages, paths
from stepscope.collect.analysis_process import prepare_analysis
from stepscope.collect.settings import Place
from stepscope.profiler._profiler_path_creator import handler_place


class TraceHandler:
    """Analyses each capture of its profiler; has its own folder and worker name."""

    def __init__(self, dir_name: str | None, worker_name: str | None, *, analyse: bool, background: bool):
        self.dir_name, self.worker_name = dir_name, worker_name
        self.analyse, self.background = analyse, background

    def __call__(self, prof: Any) -> None:
        if self.analyse:
            prof.prof_if.analyse(background=self.background)

    def prepare(self) -> None:
        """Recording begins: the analysis for which the job will wait may load meanwhile."""
        if self.analyse and not self.background:
            prepare_analysis()

    def place(self) -> Place:
        return handler_place(self.dir_name, self.worker_name)


def tensorboard_trace_handler(
    dir_name: Any = None, worker_name: Any = None, analyse_flag: Any = True, async_mode: Any = False
) -> TraceHandler:
    """A handler for `on_trace_ready` that keeps captures in `dir_name` and analyses them.

    Args:
        dir_name: folder for captures, created when the first one begins; default: the current folder.
        worker_name: first part of the names of captures; default: the host name.
        analyse_flag: analyse each finished capture; otherwise only raw data are kept.
        async_mode: do not wait for the analysis.
    """
    return TraceHandler(
        _text("dir_name", dir_name),
        _worker(worker_name),
        analyse=_flag("analyse_flag", analyse_flag, True),
        background=_flag("async_mode", async_mode, False),
    )


def _text(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        messages.warning(f"{name}={value!r} is not a non-empty str; using the default")
        return None
    return value


def _worker(value: Any) -> str | None:
    """The first part of a folder's name; checked here, where the user wrote it, and not when the first capture begins."""
    name, longest = _text("worker_name", value), paths.longest_worker_name()
    if name is None:
        return None
    size = len(os.fsencode(name))
    if "/" in name or "\0" in name:
        problem = "contains a character that no folder's name may have (/)"
    elif size > longest:
        problem = f"has {size} bytes, at most {longest} fit into the folder's name"
    else:
        return name
    messages.warning(f"worker_name={name[:40]!r}{'…' if len(name) > 40 else ''} {problem}; using the host name")
    return None


def _flag(name: str, value: Any, default: bool) -> bool:
    if isinstance(value, bool):
        return value
    messages.warning(f"{name}={value!r} is not a bool; using {default}")
    return default

# SPDX-License-Identifier: Apache-2.0
"""The analysis of all ranks of a run, made once in the background and kept until one of its captures changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from stepscope.cluster.analyse import Analysis
from stepscope.cluster.drawing import segments, shared_calls
from stepscope.cluster.read import store
from stepscope.cluster.read.engine import read_local
from stepscope.cluster.read.from_tables import digest
from stepscope.cluster.read.reading import Options, Outcome
from stepscope.cluster.run import analyse_run, settle
from stepscope.errors import CaptureError
from stepscope.web.problems import Problem

if TYPE_CHECKING:
    from stepscope.web.catalogue import Entry

MOST_KEPT = 4  # runs
Value = TypeVar("Value")


@dataclass
class RunAnalysis:
    """A run that was analysed, and frames that several routes use."""

    analysis: Analysis
    workers: dict[int, tuple[str, str]]  # worker and span by rank
    _results: dict[str, Any] = field(default_factory=dict)
    _lock: Any = field(default_factory=RLock)

    def once(self, key: str, make: Callable[[], Value]) -> Value:
        with self._lock:
            if key not in self._results:
                self._results[key] = make()
            value: Value = self._results[key]
            return value

    @property
    def segments(self) -> pl.DataFrame:
        """Work and waiting of every rank on its own clock."""
        return self.once("segments", lambda: segments(self.analysis.digests))

    @property
    def calls(self) -> pl.DataFrame:
        """Calls of the ranks whose clock is aligned, on the common clock."""
        analysis = self.analysis
        return self.once("calls", lambda: shared_calls(analysis.digests, analysis.clocks, analysis.matches.rows))


@dataclass
class _Task:
    future: Future[RunAnalysis] | None = None
    done: int = 0
    count: int = 1


class RunAnalyses:
    """Analyses by run and by the versions of its captures. Safe to use from several threads."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[Any, ...], _Task] = {}
        self._lock = RLock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="stepscope-run")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def analysis(self, entries: Sequence[Entry], wait: float) -> RunAnalysis:
        """The analysis when it is ready in so many seconds; else the problem that says how far it is."""
        if len(entries) < 2:
            raise Problem(404, "missing_data", "this run has one rank", hint="record every rank into one folder")
        key = tuple((entry.location.key, entry.version) for entry in entries)
        with self._lock:
            task = self._tasks.get(key)
            if task is None:
                while len(self._tasks) >= MOST_KEPT:
                    self._tasks.pop(next(iter(self._tasks)))
                task = self._tasks[key] = _Task(count=len(entries))
                task.future = self._pool.submit(_analyse, list(entries), task)
        assert task.future is not None
        try:
            return task.future.result(timeout=wait)
        except (FutureTimeout, TimeoutError):
            raise Problem(
                409, "loading", "still reading the ranks", detail=f"{task.done} of {task.count} ranks", hint="ask again",
                progress=task.done / (task.count + 1), stage="ranks",
            ) from None  # fmt: skip
        except CaptureError as problem:
            what, detail, hint = (entries[0].private(text or "") for text in (problem.what, problem.cause, problem.fix))
            raise Problem(415, "unreadable", what, detail=detail, hint=hint) from None


def _analyse(entries: list[Entry], task: _Task) -> RunAnalysis:
    names = {str(entry.location.files.root): (entry.location.worker, entry.location.span) for entry in entries}
    paths = list(names)
    base = os.path.commonpath([os.path.dirname(path) for path in paths])
    loaded = settle(_outcomes(entries, task), base)
    return RunAnalysis(analyse_run(loaded), {rank: names[captures[0]] for rank, captures in loaded.captures.items()})


def _outcomes(entries: list[Entry], task: _Task) -> Iterator[Outcome]:
    """Digests of captures: from the tables of those that are read already, else from their files."""
    unread = []
    for entry in entries:
        path, ready = str(entry.location.files.root), entry.ready
        if ready is None:
            unread.append(path)
            continue
        rank = ready.tables.facts.rank
        task.done += 1
        yield Outcome(path, store.to_bytes(digest(ready.tables, rank=rank)), rank if rank >= 0 else None)
    for outcome in read_local(unread, Options()) if unread else ():
        task.done += 1
        yield outcome

# SPDX-License-Identifier: Apache-2.0
"""Asks questions of guarded processes (`child.py`): a few at once, each ended at its limit whatever it does.

A process belongs to one store and waits there for further questions: starting one takes most of a second, a question to a
waiting one milliseconds.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, NamedTuple

import orjson
import polars as pl

from stepscope.child_process import how_ended
from stepscope.query import QueryError
from stepscope.query.process import end, start
from stepscope.query.statement import check, parse
from stepscope.query.views.columns import VIEW_TABLES
from stepscope.tables.sealed_folder import MANIFEST

MOST_ROWS = 10_000
_START_SECONDS = 60.0  # on a busy machine; views are computed then; a start is not part of the time of a question
_HEAD = 1 << 16


class Store(NamedTuple):
    """The stored tables of one capture."""

    folder: Path
    path: str = ""  # of the capture, as the relation `facts` shows it
    rows: Mapping[str, int] | None = None  # of each table that has some, which the store must have too


class Answer(NamedTuple):
    frame: pl.DataFrame
    more: bool  # whether there are further rows
    numbered: bool = False  # whether ranks repeat, so that the column `capture` tells captures apart


class StoreChanged(Exception):
    """A store does not hold the tables that were expected; `number` says which."""

    def __init__(self, number: int = 0):
        super().__init__(number)
        self.number = number


@dataclass(frozen=True)
class Limits:
    """What the questions of one engine may use."""

    at_once: int = 2
    seconds: float = 10.0
    memory: int = 2 << 30  # bytes beyond what is mapped
    waiting: int | None = None  # questions that may wait for their turn; None: any number
    nice: int = 0  # how far the processes stand back behind others


class Engine:
    """The processes of one program. Safe to use from several threads."""

    def __init__(self, limits: Limits | None = None):
        self.limits = limits or Limits()
        self._turns = BoundedSemaphore(self.limits.at_once)
        self._lock = Lock()
        self._idle: list[_Child] = []
        self._started: list[subprocess.Popen[bytes]] = []
        self._closed = False
        self._waiting = 0

    def adopt(self, process: subprocess.Popen[bytes]) -> None:
        """Use a process that was started (`process.start`) before this engine was there."""
        self._started.append(process)

    def ask(self, stores: Sequence[Store], query: str, limit: int = 1000) -> Answer:
        """The answer to a question about the tables in some stores.

        Args:
            stores: of the captures to ask, each a rank.
            query: one SELECT, SHOW TABLES or DESCRIBE.
            limit: rows of the answer at most; it may be cut earlier when it is large.

        Raises:
            QueryError: the question is not allowed, wrong, or needs more than the limits.
            StoreChanged: a store holds other tables.
        """
        text = check(query)
        self._wait_for_turn()
        try:
            child = self._child(stores, parse(text).names & set(VIEW_TABLES))
            try:
                answer = child.ask(text, min(limit, MOST_ROWS), self.limits)
            except BaseException:
                if child.running:
                    self._keep(child)
                raise
            self._keep(child)
            return answer
        finally:
            self._turns.release()

    def _wait_for_turn(self) -> None:
        """Take a turn. Those who wait hold a thread of a server each, so that only a few may."""
        if self._turns.acquire(blocking=False):
            return
        with self._lock:
            full = self.limits.waiting is not None and self._waiting >= self.limits.waiting
            self._waiting += not full
        try:
            if full or not self._turns.acquire(timeout=self.limits.seconds):
                raise QueryError(f"{self.limits.at_once} queries are running already", fix="ask again in a moment", busy=True)
        finally:
            with self._lock:
                self._waiting -= not full

    def close(self) -> None:
        """End all processes that wait."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            started, self._started = self._started, []
        for process in started:
            end(process)
        for child in idle:
            child.end()

    def prepare(self, stores: Sequence[Store]) -> None:
        """Start a process for these stores, so that the first question finds it waiting; nothing when all are in use.

        Raises:
            StoreChanged: a store holds other tables.
        """
        if self._turns.acquire(blocking=False):
            try:
                self._keep(self._child(stores, frozenset()))
            finally:
                self._turns.release()

    def _child(self, stores: Sequence[Store], views: frozenset[str]) -> _Child:
        key = tuple(_key(store.folder, number) for number, store in enumerate(stores))
        with self._lock:
            ended = [child for child in self._idle if not child.running]
            waiting = [child for child in self._idle if child.running]
            same = [child for child in waiting if child.key == key]
            found = next((child for child in same if child.views >= views), None)
            if found is None and same:
                # It lacks a view: one with that view too takes its place.
                views, ended, waiting = (
                    views | same[0].views,
                    [*ended, same[0]],
                    [child for child in waiting if child is not same[0]],
                )
            # Together with the questions that run now there are never more than `at_once`.
            kept = [child for child in waiting if child is not found][: self.limits.at_once - 1]
            surplus = [*ended, *(child for child in waiting if child is not found and child not in kept)]
            self._idle = kept
        for child in surplus:
            child.end()
        if found is not None:
            return found
        with self._lock:
            # One that its command ended meanwhile is of no use.
            ready = [process for process in self._started if process.stdin is not None and not process.stdin.closed]
            self._started = ready[:-1]
        return _Child(ready[-1] if ready else start(), key, stores, views, self.limits)

    def _keep(self, child: _Child) -> None:
        with self._lock:
            if not self._closed:
                self._idle.insert(0, child)
                surplus = self._idle[self.limits.at_once :]
                del self._idle[self.limits.at_once :]
            else:
                surplus = [child]
        for one in surplus:
            one.end()


def _key(store: Path, number: int) -> tuple[object, ...]:
    """Changes when the store is built again."""
    try:
        status = (store / MANIFEST).stat()
    except OSError:
        raise StoreChanged(number) from None
    return str(store), status.st_ino, status.st_mtime_ns


class _Child:
    """One process and its two pipes."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        key: tuple[object, ...],
        stores: Sequence[Store],
        views: frozenset[str],
        limits: Limits,
    ):
        self.key, self.views = key, views
        listed = [
            {"folder": str(one.folder), "path": one.path, "rows": None if one.rows is None else dict(one.rows)} for one in stores
        ]
        settings = {"stores": listed, "views": sorted(views), "memory": limits.memory, "nice": limits.nice}
        self._process = process
        self._left = b""
        try:
            assert process.stdin is not None
            process.stdin.write(orjson.dumps(settings) + b"\n")
            process.stdin.flush()
            head = self._head(time.monotonic() + _START_SECONDS)
        except (TimeoutError, EOFError, BrokenPipeError):
            self.end()
            raise QueryError(
                "the process for queries could not start",
                cause=f"it took more than {_START_SECONDS:g} s, or ended: {how_ended(self._process.returncode)}",
                fix="ask again when the machine is less busy; for a large capture ask its tables instead of views",
            ) from None
        except BaseException:
            self.end()
            raise
        if "message" in head:
            self.end()
            raise QueryError("the view cannot be computed", cause=str(head["message"]), fix="ask the tables instead: SHOW TABLES")
        if not head.get("ready"):
            self.end()
            raise StoreChanged(int(head.get("number", 0)))
        self._numbered = bool(head.get("numbered"))

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def ask(self, query: str, limit: int, limits: Limits) -> Answer:
        until = time.monotonic() + limits.seconds
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(orjson.dumps({"query": query, "limit": limit, "seconds": limits.seconds}) + b"\n")
            self._process.stdin.flush()
            head = self._head(until)
            data = self._bytes(int(head.get("bytes", 0)), until)
        except TimeoutError:
            self.end()
            raise QueryError(
                f"the query took longer than {limits.seconds:g} s", cause="it was stopped", fix="ask for less"
            ) from None
        except (EOFError, OSError):
            self.end()
            raise QueryError(
                "the query used more than it may",
                cause=f"its process ended: {how_ended(self._process.returncode)}",
                fix=f"ask for less; the limit is {limits.memory >> 20:,} MB beside the tables, and {limits.seconds:g} s",
            ) from None
        except BaseException:
            self.end()  # half an answer is in the pipe
            raise
        if "error" in head:
            raise QueryError("the query cannot be run", cause=str(head.get("message", "")), fix="see docs/query.md")
        return Answer(pl.read_ipc_stream(data), bool(head["more"]), self._numbered)

    def end(self) -> None:
        end(self._process)

    def _head(self, until: float) -> dict[str, Any]:
        while b"\n" not in self._left:
            self._left += self._some(until)
        line, _, self._left = self._left.partition(b"\n")
        head: dict[str, Any] = orjson.loads(line)
        return head

    def _bytes(self, size: int, until: float) -> bytes:
        parts, amount = [self._left], len(self._left)
        while amount < size:
            parts.append(self._some(until))
            amount += len(parts[-1])
        self._left = b""
        return b"".join(parts)

    def _some(self, until: float) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        waiting = select.poll()
        waiting.register(pipe, select.POLLIN)
        if not waiting.poll(max(0.0, until - time.monotonic()) * 1000):
            raise TimeoutError
        data = os.read(pipe, _HEAD)
        if not data:
            self._process.wait()
            raise EOFError
        return data

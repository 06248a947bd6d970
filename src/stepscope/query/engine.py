# SPDX-License-Identifier: Apache-2.0
"""Asks questions of guarded processes (`child.py`): a few at once, each ended at its limit whatever it does.

A process belongs to one store and waits there for further questions: starting one takes most of a second, a question to a
waiting one milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, NamedTuple

import orjson
import polars as pl

from stepscope.child_process import command, environment, how_ended
from stepscope.query import QueryError
from stepscope.query.statement import check
from stepscope.tables.sealed_folder import MANIFEST

MOST_ROWS = 10_000
_START_SECONDS = 60.0  # on a busy machine; a start is no part of the time of a question
_HEAD = 1 << 16


class Answer(NamedTuple):
    frame: pl.DataFrame
    more: bool  # whether there are further rows


class StoreChanged(Exception):
    """The store does not hold the tables that were expected."""


@dataclass(frozen=True)
class Limits:
    """What the questions of one engine may use."""

    at_once: int = 2
    seconds: float = 10.0
    memory: int = 2 << 30  # bytes beyond what is mapped


class Engine:
    """The processes of one program. Safe to use from several threads."""

    def __init__(self, limits: Limits | None = None):
        self.limits = limits or Limits()
        self._turns = BoundedSemaphore(self.limits.at_once)
        self._lock = Lock()
        self._idle: list[_Child] = []
        self._closed = False

    def ask(self, store: Path, rows: Mapping[str, int], query: str, limit: int = 1000) -> Answer:
        """The answer to a question about the tables in a store.

        Args:
            store: folder of the store.
            rows: number of rows of each table that has some, which the store must have too.
            query: one SELECT.
            limit: rows of the answer at most; it may be cut earlier when it is large.

        Raises:
            QueryError: the question is not allowed, wrong, or needs more than the limits.
            StoreChanged: the store holds other tables.
        """
        text = check(query)
        if not self._turns.acquire(timeout=self.limits.seconds):
            raise QueryError(f"{self.limits.at_once} queries are running already", fix="ask again in a moment", busy=True)
        try:
            child = self._child(store, rows)
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

    def close(self) -> None:
        """End all processes that wait."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()

    def _child(self, store: Path, rows: Mapping[str, int]) -> _Child:
        key = _key(store)
        with self._lock:
            ended = [child for child in self._idle if not child.running]
            waiting = [child for child in self._idle if child.running]
            found = next((child for child in waiting if child.key == key), None)
            # Together with the questions that run now there are never more than `at_once`.
            kept = [child for child in waiting if child is not found][: self.limits.at_once - 1]
            surplus = [*ended, *(child for child in waiting if child is not found and child not in kept)]
            self._idle = kept
        for child in surplus:
            child.end()
        return found or _Child(key, store, rows, self.limits)

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


def _key(store: Path) -> tuple[object, ...]:
    """Changes when the store is built again."""
    try:
        status = (store / MANIFEST).stat()
    except OSError:
        raise StoreChanged from None
    return str(store), status.st_ino, status.st_mtime_ns


class _Child:
    """One process and its two pipes."""

    def __init__(self, key: tuple[object, ...], store: Path, rows: Mapping[str, int], limits: Limits):
        self.key = key
        settings = {"store": str(store), "rows": dict(rows), "memory": limits.memory, "seconds": limits.seconds}
        self._process = subprocess.Popen(
            command("stepscope.query.child:main", orjson.dumps(settings).decode()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment(), "POLARS_MAX_THREADS": str(min(4, os.cpu_count() or 1))},
            start_new_session=True,  # Ctrl+C is for the program that asks
        )
        self._left = b""
        try:
            head = self._head(time.monotonic() + _START_SECONDS)
        except BaseException:
            self.end()
            raise
        if not head.get("ready"):
            self.end()
            raise StoreChanged

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def ask(self, query: str, limit: int, limits: Limits) -> Answer:
        until = time.monotonic() + limits.seconds
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(orjson.dumps({"query": query, "limit": limit}) + b"\n")
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
            raise QueryError("the query cannot be run", cause=str(head.get("message", "")), fix="only SELECT is possible")
        return Answer(pl.read_ipc_stream(data), bool(head["more"]))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not sent yet
                    pipe.close()

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

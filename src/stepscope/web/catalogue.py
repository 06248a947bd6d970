# SPDX-License-Identifier: Apache-2.0
"""All captures that the viewer knows: found, loading, ready or failed; looked for again from time to time."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any
from uuid import uuid4

import orjson

from stepscope.analysis import quality
from stepscope.capture import Capture
from stepscope.errors import CaptureError
from stepscope.tables.store import SCHEMA_VERSION, fingerprint
from stepscope.web.discovery import Found, discover, layouts, natural, shown_path
from stepscope.web.loaded import LoadedCapture, open_capture
from stepscope.web.problems import Problem
from stepscope.web.timeline import index as trace_index
from stepscope.web.view_list import in_order, views_by_files, views_of

LOG = logging.getLogger("stepscope.web")
REFRESH_S = 10.0
Opener = Callable[..., LoadedCapture]


@dataclass
class Entry:
    """One capture and how far it is."""

    found: Found
    version: str
    stage: str = ""
    progress: float = 0.0
    future: Future[LoadedCapture] | None = None
    cancelled: bool = False
    changing: bool = False  # its files changed while they were read: what was read has no version
    _error: dict[str, Any] | None = None
    _guess: list[str] | None = None

    @property
    def views_by_files(self) -> list[str]:
        """A guess that holds until the capture is read."""
        if self._guess is None:
            self._guess = views_by_files(self.found.files)
        return self._guess

    @property
    def state(self) -> str:
        if self.future is None:
            return "not_analysed" if self.found.not_analysed else "found"
        if not self.future.done():
            return "loading"
        return "failed" if self.future.cancelled() or self.future.exception() is not None else "ready"

    @property
    def ready(self) -> LoadedCapture | None:
        return self.future.result() if self.future is not None and self.state == "ready" else None

    @property
    def error(self) -> dict[str, Any] | None:
        """What stopped the loading, as the body of an error answer with its status."""
        if self.state != "failed" or self.future is None or self.future.cancelled():
            return None
        if self._error is None:
            problem = self.future.exception()
            assert problem is not None
            self._error = described_error(self, problem)
        return self._error

    def moved(self, stage: str, progress: float) -> None:
        """Called between the stages of reading, so that is where a cancelled one ends."""
        if self.cancelled:
            raise CaptureError("reading was cancelled", where=str(self.found.files.root), fix="press Try again")
        self.stage, self.progress = self.private(stage), progress

    def private(self, text: str) -> str:
        """Text without the place of the folder that was given."""
        return hidden(text, self.found.root)


def hidden(text: str, root: Path) -> str:
    """A message without the paths that lead to the folder which the user gave."""
    return text.replace(f"{root}/", "").replace(str(root), root.name)


class Catalogue:
    """The captures below some folders. Safe to use from several threads."""

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        follow_links: bool = False,
        clock: Callable[[], float] = time.monotonic,
        opener: Opener = open_capture,
        workers: int = 2,
    ):
        self.roots = [Path(root) for root in roots]
        self.follow_links = follow_links
        self._clock, self._opener = clock, opener
        self._entries: dict[tuple[str, str, str], Entry] = {}
        self._gone: dict[tuple[str, str, str], str] = {}  # captures that were here before, and their paths
        self._lock = RLock()
        self._scanning = RLock()
        self._scanned: float | None = None
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="stepscope-load")

    @property
    def known(self) -> bool:
        """Whether any capture was found; touches nothing but memory."""
        return bool(self._entries)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def scan(self, *, force: bool = False) -> None:
        """Look for captures again when the last look is too long ago."""
        with self._scanning:
            if not force and self._scanned is not None and self._clock() - self._scanned < REFRESH_S:
                return
            found = {item.key: (item, data_version(item)) for item in discover(self.roots, follow_links=self.follow_links)}
            self._scanned = self._clock()
        with self._lock:
            self._gone |= {key: entry.found.path for key, entry in self._entries.items() if key not in found}
            self._entries = {key: self._kept(key, *item) for key, item in found.items()}

    def _kept(self, key: tuple[str, str, str], found: Found, version: str) -> Entry:
        known = self._entries.get(key)
        if known is not None and known.version == version and known.found.files.root == found.files.root:
            return known
        return Entry(found, version)

    def entries(self) -> list[Entry]:
        with self._lock:
            return list(self._entries.values())

    def entry(self, run: str | None, worker: str | None, span: str | None) -> Entry:
        """The capture of that name; what is left out means the first."""
        self.scan()
        found = self.entries()
        levels = (("run", run), ("worker", worker), ("span", span))
        self._refuse_gone(*(name for _, name in levels))
        if not found:
            raise Problem(404, "unknown_run", "no run here", hint="give a folder that holds captures")
        for level, name in levels:
            names = list(dict.fromkeys(getattr(entry.found, level) for entry in found))
            wanted = names[0] if name is None else name
            found = [entry for entry in found if getattr(entry.found, level) == wanted]
            if not found:
                raise Problem(
                    404,
                    f"unknown_{level}",
                    f"no {level} {wanted!r}",
                    detail=f"{level}s: {', '.join(names[:20])}",
                    hint="reload the runs",
                )
        return found[0]

    def _refuse_gone(self, *names: str | None) -> None:
        """Say it of a capture that was here and is no longer, which is not the same as a name that never was."""

        def matches(key: tuple[str, str, str]) -> bool:
            return all(wanted is None or wanted == name for wanted, name in zip(names, key, strict=True))

        with self._lock:
            gone = next((path for key, path in self._gone.items() if key not in self._entries and matches(key)), None)
            if gone is None or not any(names) or any(map(matches, self._entries)):
                return
        raise Problem(410, "gone", "this capture is no longer there", detail=gone, hint="it was moved or deleted; reload the runs")

    def workers_of(self, run: str | None, span: str | None) -> list[Entry]:
        """One capture of each worker of a run: that of the span, else its first."""
        run = self.entry(run, None, None).found.run
        chosen: dict[str, Entry] = {}
        for entry in self.entries():
            if entry.found.run == run and (entry.found.worker not in chosen or entry.found.span == span):
                chosen[entry.found.worker] = entry
        return list(chosen.values())

    def load(self, entry: Entry) -> Future[LoadedCapture]:
        """Begin to load, unless that has begun already; what failed is tried again."""
        with self._lock:
            if entry.future is None or entry.state == "failed":
                entry._error, entry.cancelled = None, False
                entry.moved("waiting for its turn", 0.0)
                entry.future = self._pool.submit(self._opened, entry)
            return entry.future

    def cancel(self, entry: Entry) -> None:
        """Give up reading; what is ready stays."""
        entry.cancelled = entry.state == "loading"

    def _opened(self, entry: Entry) -> LoadedCapture:
        opened = self._opener(entry.found.files, entry.found.root, entry.version, entry.moved)
        entry.moved("", 1.0)
        if data_version(entry.found) != entry.version:
            entry.changing, self._scanned = True, None  # the next request finds the new version
        return opened

    def opened(self, entry: Entry, wait: float | None = 0.0) -> LoadedCapture:
        """The capture when it is ready in so many seconds (None: however long); else the problem that says how far it is."""
        if entry.state == "not_analysed":
            raise Problem(
                409, "not_analysed", "this capture has not been analysed yet", detail=entry.found.path,
                hint=f"press Analyse, or run: {command(entry)}",
            )  # fmt: skip
        future = entry.future if entry.state == "failed" and entry.future else self.load(entry)
        try:
            problem = future.exception(timeout=wait)
        except (FutureTimeout, TimeoutError):
            raise Problem(
                409,
                "loading",
                "still loading",
                detail=entry.found.path,
                hint="ask again",
                progress=entry.progress,
                stage=entry.stage,
            ) from None
        if problem is not None:
            raise failed(entry.error or {})
        return future.result()

    def listing(self) -> dict[str, Any]:
        """The answer of `GET runs`."""
        self.scan()
        runs: dict[str, dict[str, list[Entry]]] = {}
        for entry in self.entries():
            runs.setdefault(entry.found.run, {}).setdefault(entry.found.worker, []).append(entry)
        shown = [
            {
                "name": run,
                "views": self._views_of_run([entry for entries in workers.values() for entry in entries], len(workers)),
                "workers": [
                    {"name": worker, "spans": [self.described(entry) for entry in spans]} for worker, spans in workers.items()
                ],
            }
            for run, workers in sorted(runs.items(), key=lambda item: natural(item[0]))
        ]
        return {
            "folders": [root.name or str(root) for root in self.roots],
            "refresh_s": REFRESH_S,
            "runs": shown,
            "empty": self._empty(shown),
        }

    def _views_of_run(self, entries: list[Entry], workers: int) -> list[str]:
        views = {view for entry in entries for view in self._views(entry)}
        if workers > 1 and views & {"Overview", "Communication", "NPU Kernel", "GPU Kernel", "CPU Kernel"}:
            views.add("Distributed")
        return in_order(views)

    def _views(self, entry: Entry) -> list[str]:
        opened = entry.ready
        if opened is not None:
            shown = opened
            return shown.once("views", lambda: views_of(shown))
        return entry.views_by_files

    def described(self, entry: Entry) -> dict[str, Any]:
        ready = entry.ready
        return {
            "name": entry.found.span,
            "state": entry.state,
            "progress": entry.progress,
            "stage": entry.stage,
            "version": entry.version,
            "views": self._views(entry),
            "device": ready.kind if ready else None,
            "simulated": ready.simulated if ready else False,
            "modelled": list(ready.facts.modelled) if ready else [],
            "rank": (ready.facts.rank if ready.facts.rank >= 0 else None) if ready else None,
            "path": entry.found.path,
            "quality": _quality(ready) if ready else None,
            "command": command(entry) if entry.state == "not_analysed" else None,
            "error": entry.error,
        }

    def _empty(self, shown: list[dict[str, Any]]) -> dict[str, Any] | None:
        if shown:
            return None
        absent = [root for root in self.roots if not root.exists()]
        looked = ", ".join(str(root) for root in self.roots)
        if absent:
            title, detail = "no such folder", ", ".join(map(str, absent))
        else:
            title, detail = f"no run in {looked}", "; ".join(_instead(root) for root in self.roots)
        return {"title": title, "detail": detail, "hint": "give a folder in one of these layouts", "layouts": layouts()}


def described_error(entry: Entry, problem: BaseException) -> dict[str, Any]:
    number = uuid4().hex[:12]
    if isinstance(problem, CaptureError):
        where = Path(problem.where) if problem.where else entry.found.files.root
        said = Problem(
            415, "unreadable", entry.private(problem.what), detail=entry.private(problem.cause or ""),
            file=shown_path(where, entry.found.root), hint=entry.private(problem.fix or ""),
        )  # fmt: skip
    elif isinstance(problem, OSError):
        said = Problem(
            415, "unreadable", "the files cannot be read", detail=problem.strerror or type(problem).__name__,
            file=entry.found.path, hint="check that they are still there and readable, then load again",
        )  # fmt: skip
    else:
        LOG.error("%s: loading %s failed", number, entry.found.files.root, exc_info=problem)
        return {"code": "internal", "title": "loading failed: a fault of stepscope", "id": number, "status": 500}
    body: dict[str, Any] = said.body(number)["error"]
    return {**body, "status": said.status}


def failed(error: dict[str, Any]) -> Problem:
    said = {"title": "loading failed", "code": "unreadable", "status": 415, **error}
    known = {key: said.get(key) or "" for key in ("detail", "hint")}
    return Problem(said["status"], said["code"], said["title"], file=said.get("file"), **known)


def command(entry: Entry) -> str:
    return f"stepscope analyse {entry.found.path}"


def data_version(found: Found) -> str:
    """A short text that changes whenever a source file or the form of our tables does."""
    try:
        sources = fingerprint(_sources(found), found.files.root)
    except OSError:  # gone or changing while we look; the next scan sees it
        sources = []
    return hashlib.sha256(orjson.dumps([SCHEMA_VERSION, trace_index.VERSION, sources])).hexdigest()[:12]


def _sources(found: Found) -> list[Path]:
    try:
        return Capture(found.files).source_files()
    except CaptureError:
        return []


def _instead(root: Path) -> str:
    if root.is_file():
        return f"{root.name} is no trace and no database"
    try:
        names = sorted(entry.name for entry in root.iterdir() if not entry.name.startswith("."))
    except OSError as problem:
        return f"{root.name}: {problem.strerror}"
    if not names:
        return f"{root.name} is empty"
    return f"{root.name} holds {', '.join(names[:5])}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _quality(opened: LoadedCapture) -> dict[str, Any]:
    """The line about quality in each language, and how many issues a reader should look at: what is normal does not count."""
    told = quality.as_dict(opened.tables.quality)
    warnings = sum(one["severity"] != "note" for one in told["issues"])
    return {key: told[key] for key in ("complete", "summary", "headline")} | {"warnings": warnings}

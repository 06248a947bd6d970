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
from stepscope.errors import CaptureError, printable
from stepscope.query.engine import Engine, Limits
from stepscope.tables.store import SCHEMA_VERSION, fingerprint
from stepscope.web.discovery import CaptureLocation, discover, layouts, natural, shown_path
from stepscope.web.loaded import LoadedCapture, load_capture
from stepscope.web.problems import Problem
from stepscope.web.run_analysis import RunAnalyses
from stepscope.web.timeline import index as trace_index
from stepscope.web.view_list import in_order, views_by_files, views_of

LOG = logging.getLogger("stepscope.web")
REFRESH_S = 10.0
Loader = Callable[..., LoadedCapture]


@dataclass
class Entry:
    """One capture and how far it is."""

    location: CaptureLocation
    version: str
    stage: str = ""
    progress: float = 0.0
    read_bytes: int = 0
    total_bytes: int = 0  # 0 where nothing is read: opened from a store, or on another stage
    future: Future[LoadedCapture] | None = None
    cancelled: bool = False
    changing: bool = False  # its files changed while they were read: what was read has no version
    _error: dict[str, Any] | None = None
    _guess: list[str] | None = None

    @property
    def views_by_files(self) -> list[str]:
        """A guess that holds until the capture is read."""
        if self._guess is None:
            self._guess = views_by_files(self.location.files)
        return self._guess

    @property
    def state(self) -> str:
        if self.future is None:
            return "not_analysed" if self.location.not_analysed else "found"
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
            self._error = error_body(self, problem)
        return self._error

    def report(self, stage: str, progress: float, read: int = 0, total: int = 0) -> None:
        """Note how far loading is. Called between its stages, which is where a cancelled one ends."""
        if self.cancelled:
            raise CaptureError("reading was cancelled", where=str(self.location.files.root), fix="press Try again")
        self.stage, self.progress = self.private(stage), progress
        self.read_bytes, self.total_bytes = read, total

    def private(self, text: str) -> str:
        """Text without the place of the folder that was given."""
        return without_root(text, self.location.root)


def without_root(text: str, root: Path) -> str:
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
        loader: Loader = load_capture,
        workers: int = 2,
    ):
        self.roots = [Path(root) for root in roots]
        self.follow_links = follow_links
        self._clock, self._loader = clock, loader
        self._entries: dict[tuple[str, str, str], Entry] = {}
        self._gone: dict[tuple[str, str, str], str] = {}  # captures that were here before, and their paths
        self._lock = RLock()
        self._scanning = RLock()
        self._scanned: float | None = None
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="stepscope-load")
        # Four of the server's threads at most are busy with queries, and their processes leave the processor to the others.
        self.queries = Engine(Limits(waiting=2, nice=10))
        self.analyses = RunAnalyses()

    @property
    def known(self) -> bool:
        """Whether any capture was found; touches nothing but memory."""
        return bool(self._entries)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.queries.close()
        self.analyses.close()

    def scan(self, *, force: bool = False) -> None:
        """Look for captures again when the last look is too long ago."""
        with self._scanning:
            if not force and self._scanned is not None and self._clock() - self._scanned < REFRESH_S:
                return
            found = {item.key: (item, data_version(item)) for item in discover(self.roots, follow_links=self.follow_links)}
            self._scanned = self._clock()
        with self._lock:
            self._gone |= {key: entry.location.path for key, entry in self._entries.items() if key not in found}
            self._entries = {key: self._entry(key, *item) for key, item in found.items()}

    def _entry(self, key: tuple[str, str, str], location: CaptureLocation, version: str) -> Entry:
        known = self._entries.get(key)
        if known is not None and known.version == version and known.location.files.root == location.files.root:
            # What an analysis wrote beside the raw data changes no source, but what there is to load.
            known.location, known._guess = location, None
            return known
        return Entry(location, version)

    def entries(self) -> list[Entry]:
        with self._lock:
            return list(self._entries.values())

    def entry(self, run: str | None, worker: str | None, span: str | None) -> Entry:
        """The capture of that name; what is left out means the first."""
        self.scan()
        entries = self.entries()
        levels = (("run", run), ("worker", worker), ("span", span))
        self._refuse_gone(*(name for _, name in levels))
        if not entries:
            raise Problem(404, "unknown_run", "no run here", hint="give a folder that holds captures")
        for level, name in levels:
            names = list(dict.fromkeys(getattr(entry.location, level) for entry in entries))
            choice = names[0] if name is None else name
            entries = [entry for entry in entries if getattr(entry.location, level) == choice]
            if not entries:
                raise Problem(
                    404,
                    f"unknown_{level}",
                    f"no {level} {choice!r}",
                    detail=f"{level}s: {', '.join(names[:20])}",
                    hint="reload the runs",
                )
        return entries[0]

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
        run = self.entry(run, None, None).location.run
        chosen: dict[str, Entry] = {}
        for entry in self.entries():
            if entry.location.run == run and (entry.location.worker not in chosen or entry.location.span == span):
                chosen[entry.location.worker] = entry
        return list(chosen.values())

    def load(self, entry: Entry) -> Future[LoadedCapture]:
        """Begin to load, unless that has begun already; what failed is tried again."""
        with self._lock:
            if entry.future is None or entry.state == "failed":
                entry._error, entry.cancelled = None, False
                entry.report("waiting for its turn", 0.0)
                entry.future = self._pool.submit(self._load, entry)
            return entry.future

    def cancel(self, entry: Entry) -> None:
        """Give up reading; what is ready stays."""
        entry.cancelled = entry.state == "loading"

    def _load(self, entry: Entry) -> LoadedCapture:
        capture = self._loader(entry.location.files, entry.location.root, entry.version, entry.report)
        entry.report("", 1.0)
        if data_version(entry.location) != entry.version:
            entry.changing, self._scanned = True, None  # the next request finds the new version
        return capture

    def capture(self, entry: Entry, wait: float | None = 0.0) -> LoadedCapture:
        """The capture when it is ready in so many seconds (None: however long); else the problem that says how far it is."""
        if entry.state == "not_analysed":
            raise Problem(
                409, "not_analysed", "this capture has not been analysed yet", detail=entry.location.path,
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
                detail=entry.location.path,
                hint="ask again",
                progress=entry.progress,
                stage=entry.stage,
                read_bytes=entry.read_bytes,
                total_bytes=entry.total_bytes,
            ) from None
        if problem is not None:
            raise load_problem(entry.error or {})
        return future.result()

    def listing(self) -> dict[str, Any]:
        """The answer of `GET runs`."""
        self.scan()
        runs: dict[str, dict[str, list[Entry]]] = {}
        for entry in self.entries():
            runs.setdefault(entry.location.run, {}).setdefault(entry.location.worker, []).append(entry)
        shown = [
            {
                "name": run,
                "views": self._views_of_run([entry for entries in workers.values() for entry in entries], len(workers)),
                "workers": [
                    {"name": worker, "spans": [self.describe(entry) for entry in spans]} for worker, spans in workers.items()
                ],
            }
            for run, workers in sorted(runs.items(), key=lambda item: natural(item[0]))
        ]
        return {
            "folders": [printable(root.name or str(root)) for root in self.roots],
            "refresh_s": REFRESH_S,
            "runs": shown,
            "empty": self._empty(shown),
        }

    def _views_of_run(self, entries: list[Entry], workers: int) -> list[str]:
        views = {view for entry in entries for view in self._views(entry)}
        if workers > 1 and views & {"Overview", "Communication", "NPU Kernel", "GPU Kernel", "CPU Kernel"}:
            views |= {"Cluster", "Distributed"}
        return in_order(views)

    def _views(self, entry: Entry) -> list[str]:
        ready = entry.ready
        if ready is not None:
            capture = ready
            return capture.once("views", lambda: views_of(capture))
        return entry.views_by_files

    def describe(self, entry: Entry) -> dict[str, Any]:
        ready = entry.ready
        return {
            "name": entry.location.span,
            "state": entry.state,
            "progress": entry.progress,
            "stage": entry.stage,
            "read_bytes": entry.read_bytes,
            "total_bytes": entry.total_bytes,
            "version": entry.version,
            "views": self._views(entry),
            "device": ready.kind if ready else None,
            "simulated": ready.simulated if ready else False,
            "modelled": list(ready.facts.modelled) if ready else [],
            "rank": (ready.facts.rank if ready.facts.rank >= 0 else None) if ready else None,
            "path": entry.location.path,
            "steps": ready.tables.steps.height if ready else None,
            "changing": entry.changing,
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
        title, detail = printable(title), printable(detail)
        return {"title": title, "detail": detail, "hint": "give a folder in one of these layouts", "layouts": layouts()}


def error_body(entry: Entry, problem: BaseException) -> dict[str, Any]:
    number = uuid4().hex[:12]
    if isinstance(problem, CaptureError):
        where = Path(problem.where) if problem.where else entry.location.files.root
        answer = Problem(
            415, "unreadable", entry.private(problem.what), detail=entry.private(problem.cause or ""),
            file=shown_path(where, entry.location.root), hint=entry.private(problem.fix or ""),
        )  # fmt: skip
    elif isinstance(problem, OSError):
        answer = Problem(
            415, "unreadable", "the files cannot be read", detail=problem.strerror or type(problem).__name__,
            file=entry.location.path, hint="check that they are still there and readable, then load again",
        )  # fmt: skip
    else:
        LOG.error("%s: loading %s failed", number, entry.location.files.root, exc_info=problem)
        return {"code": "internal", "title": "loading failed because of a fault in stepscope", "id": number, "status": 500}
    body: dict[str, Any] = answer.body(number)["error"]
    return {**body, "status": answer.status}


def load_problem(error: dict[str, Any]) -> Problem:
    answer = {"title": "loading failed", "code": "unreadable", "status": 415, **error}
    texts = {key: answer.get(key) or "" for key in ("detail", "hint")}
    return Problem(answer["status"], answer["code"], answer["title"], file=answer.get("file"), **texts)


def command(entry: Entry) -> str:
    return f"stepscope analyse {entry.location.path}"


def data_version(location: CaptureLocation) -> str:
    """A short text that changes whenever a source file or the form of our tables does."""
    try:
        sources = fingerprint(_sources(location), location.files.root)
    except OSError:  # gone or changing while we look; the next scan sees it
        sources = []
    return hashlib.sha256(orjson.dumps([SCHEMA_VERSION, trace_index.VERSION, sources])).hexdigest()[:12]


def _sources(location: CaptureLocation) -> list[Path]:
    try:
        return Capture(location.files).source_files()
    except CaptureError:
        return []


def _instead(root: Path) -> str:
    if root.is_file():
        return f"{root.name} is neither a trace nor a database"
    try:
        names = sorted(entry.name for entry in root.iterdir() if not entry.name.startswith("."))
    except OSError as problem:
        return f"{root.name}: {problem.strerror}"
    if not names:
        return f"{root.name} is empty"
    return f"{root.name} holds {', '.join(names[:5])}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _quality(capture: LoadedCapture) -> dict[str, Any]:
    """The line about quality in each language, and how many issues a reader should look at: what is normal does not count."""
    described = quality.as_dict(capture.tables.quality)
    warnings = sum(one["severity"] != "note" for one in described["issues"])
    return {key: described[key] for key in ("complete", "summary", "headline")} | {"warnings": warnings}

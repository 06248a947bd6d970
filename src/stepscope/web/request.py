# SPDX-License-Identifier: Apache-2.0
"""One request: its parameters, and the captures that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import parse_qs

from stepscope.diff.gate import Budget
from stepscope.tables.issues import REGISTER
from stepscope.web.catalogue import Catalogue, Entry
from stepscope.web.loaded import LoadedCapture
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem, bad_parameter
from stepscope.web.run_analysis import RunAnalysis
from stepscope.web.view_list import damaged_files

MOST_WAIT = 30


@dataclass(frozen=True)
class Settings:
    """What the user allows."""

    sql: bool = True
    source_root: Path | None = None
    follow_links: bool = False
    budget: Budget | None = None  # that a difference is held against
    hosts: frozenset[str] | None = None  # names under which the server answers; None leaves that to the server around it
    token: str | None = None


class ViewRequest:
    """A request to one route."""

    def __init__(self, catalogue: Catalogue, settings: Settings, query: Query):
        self.catalogue, self.settings, self.query = catalogue, settings, query
        self.immutable = False  # whether the answer belongs to one version of the data for ever

    @property
    def body(self) -> Any:
        return self.query.body

    def entry(self) -> Entry:
        return self.catalogue.entry(*(self.query.optional(name) for name in ("run", "worker", "span")))

    def capture(self) -> LoadedCapture:
        """The capture that the request names."""
        entry = self.entry()
        version = self.query.optional("v")
        if version is not None and version != entry.version:
            raise Problem(
                409, "changed", "the capture has changed", detail=entry.location.path, hint="reload the runs", version=entry.version
            )
        capture = self.catalogue.capture(entry, self._wait())
        self.immutable = version is not None and not entry.changing
        return capture

    def explain(self, problem: Problem) -> Problem:
        """The same problem, or the damaged file because of which the data are missing: that is not "not collected"."""
        if problem.code != "missing_data" or problem.file is None:
            return problem
        try:
            quality = self.catalogue.capture(self.entry(), 0).tables.quality
        except Problem:
            return problem
        for one in damaged_files(quality):
            if one["source"] in problem.file:
                hint = REGISTER[one["issue"]].advice
                return Problem(
                    415, "unreadable", f"unreadable: {one['source']}", detail=one["detail"], file=one["source"], hint=hint
                )
        return problem

    def _wait(self) -> float:
        return float(self.query.number("wait", 0, most=MOST_WAIT))

    def workers(self) -> tuple[dict[str, LoadedCapture], list[dict[str, Any]]]:
        """All workers of the run that are ready, and how far the others are."""
        until = monotonic() + self._wait()
        entries = self.catalogue.workers_of(self.query.optional("run"), self.query.optional("span"))
        for entry in entries:
            if entry.state == "found":
                self.catalogue.load(entry)
        ready: dict[str, LoadedCapture] = {}
        behind: list[dict[str, Any]] = []
        last: Problem | None = None
        for entry in entries:
            try:
                ready[entry.location.worker] = self.catalogue.capture(entry, max(0.0, until - monotonic()))
            except Problem as problem:
                last = problem
                behind.append({"worker": entry.location.worker, "state": entry.state, "progress": entry.progress})
        if not ready and last is not None:
            raise last
        return ready, behind

    def run_analysis(self) -> RunAnalysis:
        """The analysis of all ranks of the run."""
        entries = self.catalogue.workers_of(self.query.optional("run"), self.query.optional("span"))
        return self.catalogue.analyses.analysis(entries, self._wait())

    def worker_count(self) -> int:
        return len(self.catalogue.workers_of(self.entry().location.run, None))

    def side(self, name: str) -> LoadedCapture:
        """One of the two captures of a comparison, named by a query string of its own."""
        text = self.query.optional(name)
        if text is None:
            raise bad_parameter(name, "run=…&worker=…&span=…, encoded")
        try:
            parts: Mapping[str, list[str]] = parse_qs(text, max_num_fields=10)
        except ValueError:
            raise bad_parameter(name, "run=…&worker=…&span=…, encoded") from None
        entry = self.catalogue.entry(*(parts.get(key, [None])[0] for key in ("run", "worker", "span")))
        return self.catalogue.capture(entry, self._wait())

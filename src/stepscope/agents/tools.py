# SPDX-License-Identifier: Apache-2.0
"""What an agent can ask: functions of plain arguments that answer with JSON text. All only read, and only below given folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.agents.untrusted import fitted
from stepscope.analysis import quality
from stepscope.analysis.step_range import between
from stepscope.capture import Capture, open_all
from stepscope.diff.align import LEVELS
from stepscope.diff.engine import Side, compare_sides, record
from stepscope.errors import CaptureError
from stepscope.query.ask import answer_about
from stepscope.query.relations import Relations, columns, names, unknown_relation
from stepscope.query.views.columns import VIEW_TABLES
from stepscope.tables import ALL_TABLES
from stepscope.verdict.engine import verdict
from stepscope.verdict.what_if import what_if_ranks

_LONGEST = 20  # rows of each table in a window
_SPANS = ("steps", "ops", "kernels", "collectives", "api_calls", "marks", "gc_pauses")


class Tools:
    """The questions of agents about captures below some folders."""

    def __init__(self, roots: Sequence[Path]):
        self._roots = [root.resolve() for root in roots]
        self._opened: dict[Path, list[Capture]] = {}

    def open(self, path: str, offset: int = 0) -> str:
        """The captures at a path: rank, device, steps, rows of tables, and what was lost."""
        found = [_summary(capture) for capture in self._captures(path)]
        return fitted({"schema": "stepscope.open/1", "captures": found}, "captures", offset)

    def verdict(self, path: str, top: int = 5, lang: str = "en", offset: int = 0) -> str:
        """What costs time, what would be saved per step, where and what to do."""
        found = verdict([capture.tables for capture in self._captures(path)]).as_dict()
        chosen = "zh" if lang == "zh" else "en"
        findings = [_in_language(finding, chosen) for finding in found["findings"][: max(top, 0)]]
        ranks = [{key: rank[key] for key in ("rank", "partition", "replay_error", "complete")} for rank in found["ranks"]]
        head = {
            "schema": found["schema"],
            "answer": found["answer"][chosen],
            "together_ms": found["together_ms"],
            "ranks": ranks[:16],
        }
        return fitted({**head, "of": len(found["findings"]), "findings": findings}, "findings", offset)

    def whatif(self, path: str, scale: list[str] | None = None, without: list[str] | None = None, offset: int = 0) -> str:
        """How long a step would be with changes."""
        ranks = [capture.tables for capture in self._captures(path)]
        found = what_if_ranks(ranks, scale=scale or [], without=without or [])
        rows = [
            {"rank": tables.facts.rank if tables.facts.rank >= 0 else None, **one.as_dict()}
            for tables, one in zip(ranks, found, strict=True)
        ]
        return fitted({"schema": "stepscope.whatif/1", "ranks": rows}, "ranks", offset)

    def diff(self, base: str, new: str, by: str = "kernel", lang: str = "en", offset: int = 0) -> str:
        """Why two runs differ, row by row; the rows sum to the change of the mean step."""
        if by not in LEVELS:
            raise CaptureError(f"unknown level {by!r}", fix=f"use one of {', '.join(LEVELS)}")
        chosen = "zh" if lang == "zh" else "en"
        # One side after the other: the tables of both need not fit into memory together.
        sides = [Side([record(capture.tables) for capture in self._captures(path)]) for path in (base, new)]
        found = compare_sides(sides[0], sides[1], by=by).as_dict()
        found = {key: value for key, value in found.items() if key not in ("exact_ns", "gate")}
        return fitted({**found, "answer": found["answer"][chosen], "notes": found["notes"][chosen]}, "rows", offset)

    def query(self, path: str, sql: str, offset: int = 0) -> str:
        """Rows that answer a question in SQL."""
        answer = answer_about(self._captures(path), sql, limit=10_000, timeout=10.0)
        rows = [list(row) for row in answer.frame.iter_rows()]
        head = {"schema": "stepscope.query/1", "columns": answer.frame.columns, "cut": answer.more}
        return fitted({**head, "rows": rows}, "rows", offset)

    def describe(self, table: str = "", path: str = "", offset: int = 0) -> str:
        """The tables and views, or the columns of one."""
        if not table:
            known = {**ALL_TABLES, **VIEW_TABLES}
            rows = [
                {"name": name, "kind": "view" if name in VIEW_TABLES else "table", "doc": one.doc} for name, one in known.items()
            ]
            return fitted({"schema": "stepscope.describe/1", "tables": rows}, "tables", offset)
        if table not in names():
            raise CaptureError(unknown_relation(table), fix="call describe without a table for the list")
        if path and table in ALL_TABLES:
            from stepscope.query.views.view import RankTables

            found = Relations([RankTables(capture.tables) for capture in self._captures(path)], {}).describe(table).to_dicts()
        else:
            declared = columns(ALL_TABLES.get(table) or VIEW_TABLES[table])
            found = [{"column": one.name, "type": str(one.dtype), "unit": one.unit, "doc": one.doc} for one in declared]
        return fitted({"schema": "stepscope.describe/1", "table": table, "columns": found}, "columns", offset)

    def window(self, path: str, from_ns: int, to_ns: int, rank: int | None = None, offset: int = 0) -> str:
        """What began in a window of time, longest first, table by table."""
        if to_ns <= from_ns:
            raise CaptureError(
                "the window is empty", cause=f"from_ns {from_ns} is not before to_ns {to_ns}", fix="give from_ns < to_ns"
            )
        rows: list[dict[str, Any]] = []
        for capture in self._captures(path):
            if rank is not None and capture.facts.rank != rank:
                continue
            tables = between(capture.tables, from_ns, to_ns)
            for name in _SPANS:
                rows += _longest(capture.facts.rank, name, tables[name])
        return fitted({"schema": "stepscope.window/1", "from_ns": from_ns, "to_ns": to_ns, "rows": rows}, "rows", offset)

    def _captures(self, path: str) -> list[Capture]:
        """The captures at a path below the folders that were given when the server started.

        Raises:
            CaptureError: the path lies elsewhere, or holds no capture.
        """
        place = next((root / path for root in self._roots if (root / path).exists()), self._roots[0] / path).resolve()
        if not any(place.is_relative_to(root) for root in self._roots):
            raise CaptureError(
                "this path lies outside the folders of the server",
                where=path,
                fix=f"use a path below {', '.join(map(str, self._roots))}, or start `stepscope mcp` with its folder",
            )
        if place not in self._opened:
            self._opened = {place: open_all(place)}  # one run at a time stays in memory
        return self._opened[place]


def _summary(capture: Capture) -> dict[str, Any]:
    tables, facts = capture.tables, capture.facts
    steps = tables.steps
    return {
        "path": str(capture.path),
        "rank": facts.rank if facts.rank >= 0 else None,
        "source": facts.source,
        "device_kind": tables.device_kind,
        "devices": list(facts.device_names.values()),
        "steps": steps["step"].to_list()[:50],
        "start_ns": steps["start_ns"].min(),
        "end_ns": steps["end_ns"].max(),
        "rows": {name: tables[name].height for name in tables.filled() if name not in ("meta", "quality")},
        "complete": quality.complete(tables.quality),
        "quality": quality.summary(tables.quality),
    }


def _in_language(finding: dict[str, Any], lang: str) -> dict[str, Any]:
    texts = {key: finding[key][lang] for key in ("title", "detail", "next")}
    lists = {key: finding[key][:5] for key in ("evidence", "where")}
    return {**finding, **texts, **lists}


def _longest(rank: int, name: str, frame: pl.DataFrame) -> list[dict[str, Any]]:
    text = "message" if name == "marks" else "name"
    spans = frame.drop_nulls(["start_ns", "end_ns"]).with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    rows = spans.sort("ns", descending=True, maintain_order=True).head(_LONGEST)
    named = rows[text].cast(pl.String).to_list() if text in rows.columns else [None] * rows.height
    return [
        {"rank": rank if rank >= 0 else None, "table": name, "name": label, "start_ns": start, "ns": ns, "of": frame.height}
        for label, start, ns in zip(named, rows["start_ns"], rows["ns"], strict=True)
    ]

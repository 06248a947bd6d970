"""Recompute what the real database captures say about themselves (docs/formats/outputs.md 15)."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from stepscope.analysis.flows import forward_backward_links
from stepscope.analysis.link.attribution import launched
from stepscope.analysis.link.capture import link
from stepscope.analysis.step_time import step_trace_time_by_task
from stepscope.formats.ascend.db.read import read
from stepscope.tables import Facts, Tables

CAPTURES = [f"level{level}/rank{rank}_ascend_pt" for level in (0, 2) for rank in (0, 1)]
OPERATOR = 50001

CONNECTIONS = """
SELECT CAST(api.startNs AS INTEGER), CAST(api.endNs AS INTEGER), text.value, ids.connectionId
FROM PYTORCH_API api JOIN CONNECTION_IDS ids ON ids.id = api.connectionId JOIN STRING_IDS text ON text.id = api.name
WHERE api.type = ?
"""


@cache
def _capture(folder: Path) -> Tables:
    return link(read(next(folder.glob("ascend_pytorch_profiler*.db")), Facts(generation="G1"))).check()


def rows(database: Path, query: str, *values: object) -> list[tuple]:
    with sqlite3.connect(f"file:{database}?mode=ro&immutable=1", uri=True) as connection:
        return connection.execute(query, values).fetchall()


@pytest.fixture
def folder(golden: Path, request: pytest.FixtureRequest) -> Path:
    return golden / "ascend_pt" / "db" / request.param / "ASCEND_PROFILER_OUTPUT"


@pytest.fixture
def capture(folder: Path) -> Tables:
    return _capture(folder)


all_captures = pytest.mark.parametrize("folder", CAPTURES, indirect=True)


@all_captures
def test_step_trace_time(folder: Path, capture: Tables):
    columns = "step, computing, communication_not_overlapped, overlapped, communication, free, stage, bubble, \
        communication_not_overlapped_and_exclude_receive, preparing"
    expected = rows(folder / "analysis.db", f"SELECT {columns} FROM StepTraceTime")
    found = step_trace_time_by_task(capture).drop("device")
    assert [(str(row[0]), *[value / 1000 for value in row[1:]]) for row in found.iter_rows()] == expected


def shipped_connections(folder: Path) -> tuple[set[tuple], set[int]]:
    """(start, end, name, connection id) of operators, and the ids of operator launches."""
    database = next(folder.glob("ascend_pytorch_profiler*.db"))
    launches = "SELECT connectionId FROM CANN_API WHERE type = 10000 AND name = (SELECT id FROM STRING_IDS WHERE value = 'launch')"
    return set(rows(database, CONNECTIONS, OPERATOR)), {number for (number,) in rows(database, launches)}


@all_captures
def test_launches_of_operators(folder: Path, capture: Tables):
    connections, launches = shipped_connections(folder)
    expected = {row for row in connections if row[3] in launches}
    tasks = launched(capture.kernels, capture.collectives).drop_nulls("op").filter(pl.col("connection_id").is_in(list(launches)))
    ops = capture.ops.select("start_ns", "end_ns", pl.col("name").cast(pl.String)).rows()
    found = {(*ops[op], number) for op, number in tasks.select("op", "connection_id").iter_rows()}
    assert len(expected) == len(launches) == 191
    assert found == expected


@all_captures
def test_forward_and_backward_share_a_connection(folder: Path, capture: Tables):
    connections, launches = shipped_connections(folder)
    by_number: dict[int, set[tuple]] = {}
    for *operator, number in connections:
        if number not in launches:
            by_number.setdefault(number, set()).add(tuple(operator))
    ops = capture.ops.select("start_ns", "end_ns", pl.col("name").cast(pl.String)).rows()
    pairs = forward_backward_links(capture.ops)
    found = [{ops[a], ops[b]} for a, b in pairs.select("forward", "backward").iter_rows()]
    expected = list(by_number.values())
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))

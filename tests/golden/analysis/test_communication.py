"""Communication files of real captures, recomputed from the link tasks and compared cell by cell (docs/formats/outputs.md 15)."""

from __future__ import annotations

import json
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stepscope.analysis.link.capture import link
from stepscope.export.analysis_db import communication_rows
from stepscope.export.communication_json import communication_json, communication_matrix_json
from stepscope.formats.ascend import text as ascend_text
from stepscope.formats.ascend.db import read as ascend_db
from stepscope.tables import ALL_TABLES, Facts, Tables

GIVEN = ("collective_times", "collective_packets", "collective_links")
RANKS = [f"level2/rank{rank}_ascend_pt" for rank in (0, 1)]

# The timeline has whole nanoseconds, the vendor's analysis had fractions; start is a float of microseconds
# (docs/formats/outputs.md 9.1).
TOLERANCE = {"Start Timestamp(us)": 0.25, "Elapse Time(ms)": 0.00025, "Idle Time(ms)": 0.00025}


@cache
def text_capture(output: Path) -> Tables:
    return link(ascend_text.read(output, Facts(generation="G1")))


@cache
def db_capture(output: Path) -> Tables:
    return link(ascend_db.read(next(output.glob("ascend_pytorch_profiler*.db")), Facts(generation="G1")))


def computed(tables: Tables) -> Tables:
    """Without what the vendor says about the operators."""
    return tables.replace(**{name: ALL_TABLES[name].empty() for name in GIVEN})


def cells(document: Any, *path: str) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(document, dict):
        return [cell for key, value in document.items() for cell in cells(value, *path, key)]
    if isinstance(document, list):
        return [cell for index, value in enumerate(document) for cell in cells(value, *path, str(index))]
    return [(path, document)]


def differences(found: Any, shipped: Any) -> list[tuple[Any, ...]]:
    ours, theirs = cells(found), cells(shipped)
    assert [path for path, _ in ours] == [path for path, _ in theirs]
    return [
        (path, value, other)
        for (path, value), (_, other) in zip(ours, theirs, strict=True)
        if value != other
        and (isinstance(value, str) or value != pytest.approx(other, rel=1e-12, abs=TOLERANCE.get(path[-1], 1e-12)))
    ]


@pytest.fixture
def text_output(golden: Path, request: pytest.FixtureRequest) -> Path:
    return golden / "ascend_pt" / "text" / request.param / "ASCEND_PROFILER_OUTPUT"


@pytest.fixture
def db_output(golden: Path, request: pytest.FixtureRequest) -> Path:
    return golden / "ascend_pt" / "db" / request.param / "ASCEND_PROFILER_OUTPUT"


@pytest.mark.parametrize("text_output", RANKS, indirect=True)
@pytest.mark.parametrize(
    ("name", "build"), [("communication.json", communication_json), ("communication_matrix.json", communication_matrix_json)]
)
def test_text_files_from_link_tasks(text_output, name, build):
    shipped = json.loads((text_output / name).read_bytes())
    assert len(cells(shipped)) > 100
    assert differences(build(computed(text_capture(text_output))), shipped) == []


@pytest.mark.parametrize("text_output", RANKS, indirect=True)
def test_what_the_vendor_says_passes_unchanged(text_output):
    shipped = json.loads((text_output / "communication.json").read_bytes())
    assert differences(communication_json(text_capture(text_output)), shipped) == []


def rows(database: Path, table: str) -> pl.DataFrame:
    with sqlite3.connect(f"file:{database}?mode=ro&immutable=1", uri=True) as connection:
        cursor = connection.execute(f"SELECT * FROM {table}")
        return pl.DataFrame(
            cursor.fetchall(), schema=[column[0] for column in cursor.description], orient="row", infer_schema_length=None
        )


def assert_like(found: pl.DataFrame, expected: pl.DataFrame, tolerance: dict[str, float]) -> None:
    assert found.columns == expected.columns
    assert found.height == expected.height
    for name in expected.columns:
        theirs = expected[name]
        if theirs.dtype == pl.String:
            assert found[name].cast(pl.String).to_list() == theirs.to_list(), name
        else:
            assert found[name].to_list() == pytest.approx(theirs.to_list(), rel=1e-9, abs=tolerance.get(name, 0)), name


# Tasks and analysis went through two clock conversions (docs/formats/outputs.md 9.1): start differs by up to 22 us.
DB_TOLERANCE = {
    "CommAnalyzerTime": {
        "start_timestamp": 22.0, "elapse_time": 2e-6, "transit_time": 1.3e-6, "wait_time": 7e-6, "synchronization_time": 1.3e-6,
        "idle_time": 7e-6,
    },
    "CommAnalyzerBandwidth": {"transit_time": 7e-6, "total_duration": 7e-6, "bandwidth": 1e-3},
    "CommAnalyzerMatrix": {"transit_time": 7e-6, "bandwidth": 0.2},
}  # fmt: skip


@pytest.mark.parametrize("db_output", RANKS, indirect=True)
@pytest.mark.parametrize("table", ["CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix"])
def test_database_tables_from_link_tasks(db_output, table):
    assert_like(
        communication_rows(computed(db_capture(db_output)))[table], rows(db_output / "analysis.db", table), DB_TOLERANCE[table]
    )


@pytest.mark.parametrize("db_output", RANKS, indirect=True)
@pytest.mark.parametrize("table", ["CommAnalyzerTime", "CommAnalyzerBandwidth"])
def test_database_tables_of_the_vendor_pass_unchanged(db_output, table):
    assert_like(communication_rows(db_capture(db_output))[table], rows(db_output / "analysis.db", table), {})

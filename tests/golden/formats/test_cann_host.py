# SPDX-License-Identifier: Apache-2.0
"""The host's half of real raw folders against what the vendor's tool made of them."""

from __future__ import annotations

import csv
import gzip
import shutil
import sqlite3

import polars as pl
import pytest

from stepscope.formats.cann.folder import open_prof
from stepscope.formats.cann.host.side import read_host

A2 = ("a2_elementwise_1task", "a2_torch_add_2100tasks", "a2_pypto_mix_aicpu_event")


@pytest.fixture(params=[*A2, "a310b_addcmul_1task"])
def capture(golden, request):
    return golden / "prof_raw" / request.param


@pytest.fixture(params=A2)
def with_db(golden, request, tmp_path):
    folder = golden / "prof_raw" / request.param
    found = next(folder.glob("msprof_*.db*"))
    copy = tmp_path / "msprof.db"
    with (gzip.open if found.suffix == ".gz" else open)(found, "rb") as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)
    with sqlite3.connect(copy) as db:
        yield read(folder), db
    db.close()


def read(folder):
    return read_host(open_prof(next(folder.glob("PROF_*"))))


def test_api_statistic(capture):
    with next((capture / "official_output").glob("api_statistic_*.csv")).open() as file:
        official = {(row["Level"], row["API Name"]): row for row in csv.DictReader(file)}
    host = read(capture)
    # A call without a begin counts from the counter's zero.
    mine = (
        host.apis.with_columns(((pl.col("end_ns") - pl.col("start_ns")) / 1000).alias("us"))
        .group_by("level", "name")
        .agg(pl.len(), pl.col("us").sum(), pl.col("us").min().alias("least"), pl.col("us").max().alias("most"))
    )
    assert set(mine.select("level", "name").rows()) == set(official)
    for level, name, count, total, least, most in mine.rows():
        row = official[level, name]
        assert count == int(row["Count"])
        assert (least, most) == (pytest.approx(float(row["Min(us)"]), abs=2e-3), pytest.approx(float(row["Max(us)"]), abs=2e-3))
        assert total == pytest.approx(float(row["Time(us)"]), abs=2e-3 * count)
    assert not host.lost


def test_calls_equal_the_database(with_db):
    host, db = with_db
    sql = (
        "select startNs, endNs, e.name, globalTid & 4294967295, s.value from CANN_API a "
        "join STRING_IDS s on s.id = a.name join ENUM_API_TYPE e on e.id = a.type"
    )
    assert sorted(host.apis.select("start_ns", "end_ns", "level", "tid", "name").rows()) == sorted(db.execute(sql).fetchall())


def test_tasks_and_their_calls_equal_the_database(with_db):
    """Type of each queued task, and the call that launched it; calls are identified by their times, not their numbers."""
    host, db = with_db
    calls = {row[0]: row[1:] for row in db.execute("select connectionId, startNs, endNs from CANN_API")}
    sql = (
        "select streamId, taskId, contextId, s.value, connectionId from TASK t join STRING_IDS s on s.id = t.taskType "
        "where t.modelId = 4294967295"
    )
    official = {row[:3]: (row[3], calls.get(row[4])) for row in db.execute(sql)}
    spans = host.apis.select("connection_id", pl.struct("start_ns", "end_ns").alias("span"))
    rows = host.tasks.join(spans, on="connection_id", how="left").with_columns(pl.col("context_id").fill_null(4294967295))
    mine = {(row["stream"], row["task_id"], row["context_id"]): row for row in rows.to_dicts()}
    matched = official.keys() & mine.keys()
    assert len(matched) >= len(official) - 1  # the last task of a stream has no record on the host
    for key in matched:
        word, call = official[key]
        assert mine[key]["span"] == (None if call is None else {"start_ns": call[0], "end_ns": call[1]})
        assert word in (mine[key]["host_type"], "AI_VECTOR_CORE", "AI_CORE", "N/A", "MIX_AIC", "AI_CPU")


def test_operators_equal_the_database(with_db):
    host, db = with_db
    sql = (
        "select t.streamId, t.taskId, t.contextId, n.value, o.value, c.value, i.blockNum from COMPUTE_TASK_INFO i "
        "join TASK t on t.globalTaskId = i.globalTaskId join STRING_IDS n on n.id = i.name "
        "join STRING_IDS o on o.id = i.opType join STRING_IDS c on c.id = i.taskType"
    )
    described = host.descriptions.with_row_index("description").cast({"description": pl.Int64})
    mine = (
        host.tasks.filter(pl.col("description").is_not_null())
        .join(described, on="description")
        .select(
            "stream", "task_id", pl.col("context_id").fill_null(4294967295), "op_name", pl.col("op_type").fill_null("N/A"),
            pl.col("core").fill_null("N/A"), pl.coalesce("block_num", "block_num_right").fill_null(0),
        )
    )  # fmt: skip
    assert sorted(mine.rows()) == sorted(db.execute(sql).fetchall())

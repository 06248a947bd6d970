# SPDX-License-Identifier: Apache-2.0
"""A real export of Nsight Systems: what is read equals a count made with SQL on the same file."""

from __future__ import annotations

import shutil
import sqlite3

import polars as pl
import pytest

import stepscope
from stepscope.formats.discover import find


@pytest.fixture(scope="module")
def export(golden):
    path = golden / "nsys" / "h100_2gpu_1s.sqlite"
    connection = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    yield stepscope.open(path).tables, connection
    connection.close()


def one(connection, query):
    return connection.execute(query).fetchall()


def test_nothing_is_lost(export):
    tables, _ = export
    tables.check()
    assert tables.quality.filter(pl.col("severity") != "note").height == 0


def test_tasks_by_gpu(export):
    tables, connection = export
    for kind, table in (("compute", "KERNEL"), ("memcpy", "MEMCPY"), ("memset", "MEMSET")):
        wanted = one(
            connection, f"SELECT deviceId, COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_{table} GROUP BY 1 ORDER BY 1"
        )
        rows = tables.kernels.filter(pl.col("kind") == kind).group_by("device").agg(
            pl.len(), (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
        )  # fmt: skip
        assert rows.sort("device").rows() == wanted


def test_time_by_kernel_name(export):
    tables, connection = export
    query = """SELECT s.value, COUNT(*), SUM(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k
               JOIN StringIds s ON s.id = k.demangledName GROUP BY 1"""
    rows = (
        tables.kernels.filter(pl.col("kind") == "compute")
        .group_by("name")
        .agg(pl.len(), pl.col("duration_ns").sum().cast(pl.Int64))
    )
    assert sorted(rows.with_columns(pl.col("name").cast(pl.String)).rows()) == sorted(one(connection, query))


def test_bytes_by_direction(export):
    tables, connection = export
    ((sent,),) = one(connection, "SELECT SUM(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1")
    assert tables.kernels.filter(pl.col("copy_direction") == "host to device")["bytes"].sum() == sent


def test_calls(export):
    tables, connection = export
    query = """SELECT SUBSTR(s.value, 1, INSTR(s.value, '_v') - 1), COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME r
               JOIN StringIds s ON s.id = r.nameId GROUP BY 1"""
    calls = tables.api_calls.filter(pl.col("level") == "cuda_runtime")
    rows = calls.group_by("name").agg(pl.len(), (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
    assert sorted(rows.with_columns(pl.col("name").cast(pl.String)).rows()) == sorted(one(connection, query))


def test_operators(export):
    tables, connection = export
    query = "SELECT SUBSTR(text, 1, INSTR(text, ', op_id') - 1), COUNT(*) FROM NVTX_EVENTS GROUP BY 1"
    rows = tables.ops.group_by(pl.col("name").cast(pl.String)).agg(pl.len())
    assert sorted(rows.rows()) == sorted(one(connection, query))


def test_launches_and_their_operators(export):
    """A kernel belongs to the innermost NVTX range around its launch, on the thread of the launch."""
    tables, connection = export
    query = """SELECT k.start, SUBSTR(n.text, 1, INSTR(n.text, ', op_id') - 1) FROM CUPTI_ACTIVITY_KIND_KERNEL k
               JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24
               JOIN NVTX_EVENTS n ON n.rowid = (SELECT m.rowid FROM NVTX_EVENTS m WHERE m.globalTid = r.globalTid
                    AND m.start <= r.start AND m.end > r.start ORDER BY m.start DESC LIMIT 1)
               WHERE k.deviceId = 0 ORDER BY k.start LIMIT 100"""
    wanted = one(connection, query)
    assert len(wanted) == 100
    kernels = tables.kernels.filter((pl.col("device") == 0) & (pl.col("kind") == "compute") & pl.col("op").is_not_null())
    names = tables.ops["name"].cast(pl.String).gather(kernels["op"])
    ((epoch, clock),) = one(connection, "SELECT utcEpochNs, systemClockNs FROM TARGET_INFO_SESSION_START_TIME")
    starts = (kernels["start_ns"] - (epoch - clock)).to_list()
    assert list(zip(starts, names.to_list(), strict=True))[:100] == wanted


def test_waits_are_no_kernels(export):
    tables, connection = export
    query = "SELECT streamId, COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION GROUP BY 1 ORDER BY 1"
    spans = tables.waits.group_by("stream").agg(pl.len(), (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
    assert spans.sort("stream").rows() == one(connection, query)
    # The export says device 0 for all of them; their contexts say which it was.
    assert set(tables.waits["device"].to_list()) == {0, 1}
    assert set(tables.kernels["kind"].to_list()) == {"compute", "memcpy", "memset"}


def test_databases_are_known_by_their_tables(golden, tmp_path):
    """Whatever the files are called: exporters and people use .db, .sqlite and .sqlite3 for either kind."""
    (ours,) = (golden / "ascend_pt/db/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT").glob("ascend_*.db")
    given = {"nsys": golden / "nsys" / "h100_2gpu_1s.sqlite", "ascend_database": ours}
    for kind, source in given.items():
        for suffix in ("db", "sqlite", "sqlite3"):
            shutil.copy(source, tmp_path / f"{kind}.{suffix}")
    assert [(item.root.stem, item.format) for item in find(tmp_path)] == [(kind, kind) for kind in sorted(given) for _ in range(3)]
    (tmp_path / "cut.sqlite").write_bytes(given["nsys"].read_bytes()[:5000])
    assert [item.format for item in find(tmp_path / "cut.sqlite")] == ["nsys"]
    assert {path.suffix for path in tmp_path.iterdir()} == {".db", ".sqlite", ".sqlite3"}  # nothing beside them

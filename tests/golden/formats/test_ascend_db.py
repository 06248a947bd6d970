# SPDX-License-Identifier: Apache-2.0
"""Real databases, row by row: what is read, and what comes out again when the tables are written."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from stepscope.analysis.link.capture import link
from stepscope.export.analysis_db import write_analysis_db
from stepscope.export.ascend_db import write_profiler_db
from stepscope.formats.ascend.db.read import read
from stepscope.tables import Facts, Tables

CAPTURES = [(level, rank) for level in (0, 2) for rank in (0, 1)]


def text(column: str) -> str:
    return f"(SELECT value FROM STRING_IDS WHERE id = {column})"


def enum(column: str, table: str) -> str:
    return f"(SELECT name FROM {table} WHERE id = {column})"


# Per table the expressions to compare, in the names of the old file; `RENAMED` says how the new one calls them.
EXPRESSIONS = {
    "TASK": [
        "startNs", "endNs", "deviceId", "connectionId", "globalTaskId", "globalPid", text("taskType"), "contextId", "streamId",
        "taskId", "modelId",
    ],
    "COMPUTE_TASK_INFO": [
        "globalTaskId", "blockDim", "mixBlockDim", *(text(name) for name in (
            "name", "taskType", "opType", "inputFormats", "inputDataTypes", "inputShapes", "outputFormats", "outputDataTypes",
            "outputShapes", "attrInfo")),
    ],
    "COMMUNICATION_OP": [
        "startNs", "endNs", "connectionId", "opId", "relay", "retry", "count", enum("dataType", "ENUM_HCCL_DATA_TYPE"),
        *(text(name) for name in ("opName", "groupName", "algType", "opType")),
    ],
    "COMMUNICATION_TASK_INFO": [
        "globalTaskId", "planeId", "srcRank", "dstRank", "size", "opId", "nullif(nullif(notifyId, 9223372036854775807), -1)",
        enum("rdmaType", "ENUM_HCCL_RDMA_TYPE"), enum("transportType", "ENUM_HCCL_TRANSPORT_TYPE"),
        enum("dataType", "ENUM_HCCL_DATA_TYPE"), enum("linkType", "ENUM_HCCL_LINK_TYPE"),
        *(text(name) for name in ("name", "taskType", "groupName")),
    ],
    "CANN_API": [
        "startNs", "endNs", f"replace({enum('type', 'ENUM_API_TYPE')}, 'hccl', 'communication')", "globalTid", "connectionId",
        text("name"),
    ],
    "TASK_PMU_INFO": ["globalTaskId", text("name"), "value"],
    "STEP_TIME": ["id", "startNs", "endNs"],
    "MEMORY_RECORD": [text("component"), "timestamp", "totalAllocated", "totalReserved", "coalesce(totalActive, 0)", "streamPtr",
                      "deviceId"],
    "OP_MEMORY": [
        text("name"), "size", "allocationTime", "releaseTime", "activeReleaseTime", "duration", "activeDuration",
        "allocationTotalAllocated", "allocationTotalReserved", "allocationTotalActive", "releaseTotalAllocated",
        "releaseTotalReserved", "releaseTotalActive", "streamPtr", "deviceId",
    ],
    "NPU_OP_MEM": [text("operatorName"), "addr", text("type"), "size", "timestampNs", "globalTid", "totalAllocate", "totalReserve",
                   text("component"), "deviceId"],
    "NPU_MEM": [text("type"), "ddr", "hbm", "timestampNs", "deviceId"],
    "NPU_MODULE_MEM": [enum("moduleId", "ENUM_MODULE"), "timestampNs", "totalReserved", "deviceId"],
    "HBM": ["deviceId", "timestampNs", "round(bandwidth, 3)", "hbmId", text("type")],
    "LLC": ["deviceId", "llcId", "timestampNs", "hitRate", "throughput", text("mode")],
    "AICORE_FREQ": ["deviceId", "timestampNs", "freq"],
    "ACC_PMU": ["accId", "readBwLevel", "writeBwLevel", "readOstLevel", "writeOstLevel", "timestampNs", "deviceId"],
    "SOC_BANDWIDTH_LEVEL": ["l2BufferBwLevel", "mataBwLevel", "timestampNs", "deviceId"],
    "RANK_DEVICE_MAP": ["rankId", "deviceId"],
    "HOST_INFO": ["hostUid", "hostName"],
    "NPU_INFO": ["id", "name"],
    "SESSION_TIME_INFO": ["startTimeNs", "endTimeNs"],
}  # fmt: skip
RENAMED = {"blockDim": "blockNum", "mixBlockDim": "mixBlockNum"}


def paths(golden: Path, level: int, rank: int) -> tuple[Path, Path]:
    folder = golden / f"ascend_pt/db/level{level}/rank{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT"
    return folder / f"ascend_pytorch_profiler_{rank}.db", folder / "analysis.db"


def rows(db: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(f"file:{db}?mode=ro&immutable=1", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def written(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], tuple[Path, Tables]]:
    """Every capture read, linked and written again, by level and rank."""
    result = {}
    for level, rank in CAPTURES:
        profiler, _ = paths(golden, level, rank)
        tables = link(read(profiler, Facts(level=f"Level{level}"))).check()
        folder = tmp_path_factory.mktemp(f"level{level}_rank{rank}")
        write_profiler_db(tables, folder / profiler.name)
        write_analysis_db(tables, folder / "analysis.db")
        result[level, rank] = folder / profiler.name, tables
    return result


@pytest.mark.parametrize(("level", "rank"), CAPTURES)
@pytest.mark.parametrize("table", EXPRESSIONS)
def test_every_row_comes_back(golden, written, level, rank, table):
    original, _ = paths(golden, level, rank)
    if not rows(original, f"SELECT name FROM sqlite_master WHERE name = '{table}'"):
        assert not rows(written[level, rank][0], f"SELECT name FROM sqlite_master WHERE name = '{table}'")
        return
    old = rows(original, f"SELECT {', '.join(EXPRESSIONS[table])} FROM {table}")
    new_columns = [RENAMED.get(expression, expression) for expression in EXPRESSIONS[table]]
    new = rows(written[level, rank][0], f"SELECT {', '.join(new_columns)} FROM {table}")
    assert len(old) > 0
    assert Counter(new) == Counter(old)


SPAN = "CAST(p.startNs AS INTEGER), CAST(p.endNs AS INTEGER), p.globalTid"


@pytest.mark.parametrize(("level", "rank"), CAPTURES)
def test_framework_rows_come_back(golden, written, level, rank):
    original, _ = paths(golden, level, rank)
    query = (
        f"SELECT {SPAN}, {{name}}, sequenceNumber, fwdThreadId, {{dtypes}}, {{shapes}}, type FROM PYTORCH_API AS p "
        "WHERE {name} NOT LIKE 'Enqueue%'"
    )
    # The first generation stores shapes where the types belong, and the other way round.
    old = rows(original, query.format(name=text("name"), dtypes=text("inputShapes"), shapes=text("inputDtypes")))
    new = rows(written[level, rank][0], query.format(name=text("name"), dtypes=text("inputDtypes"), shapes=text("inputShapes")))
    assert len(old) > 2000
    assert Counter(new) == Counter(old)


@pytest.mark.parametrize(("level", "rank"), CAPTURES)
def test_queue_keeps_its_numbers(golden, written, level, rank):
    original, _ = paths(golden, level, rank)
    query = (
        f"SELECT {SPAN}, (SELECT connectionId - {{offset}} FROM CONNECTION_IDS AS c WHERE c.id = p.connectionId) "
        "FROM PYTORCH_API AS p WHERE type = 50002"
    )
    new = rows(written[level, rank][0], query.format(offset=5 << 28))
    assert Counter(new) == Counter(rows(original, query.format(offset=0)))
    names = dict(
        rows(
            written[level, rank][0],
            f"SELECT {text('name')}, count(*) FROM PYTORCH_API WHERE type = 50002 AND {text('name')} LIKE 'Enqueue%' GROUP BY 1",
        )
    )
    assert names["Enqueue@HcclAllreduce"] == 4  # the current generation names the enqueue after its dequeue


def stacks(db: Path) -> list[tuple[object, ...]]:
    chains: dict[object, list[tuple[int, str]]] = defaultdict(list)
    for number, depth, frame in rows(db, f"SELECT id, stackDepth, {text('stack')} FROM PYTORCH_CALLCHAINS"):
        chains[number].append((depth, frame))
    ops = rows(db, "SELECT CAST(startNs AS INTEGER), callchainId FROM PYTORCH_API WHERE type = 50001")
    return sorted((start, *(frame for _, frame in sorted(chains[chain]))) for start, chain in ops if chain is not None)


@pytest.mark.parametrize(("level", "rank"), CAPTURES)
def test_call_stacks_come_back(golden, written, level, rank):
    old = stacks(paths(golden, level, rank)[0])
    assert len(old) > 300
    assert stacks(written[level, rank][0]) == old


def launches(db: Path) -> dict[tuple[object, ...], set[object]]:
    """Connection ids of runtime launches by operator."""
    query = (
        f"SELECT {SPAN}, c.connectionId FROM PYTORCH_API AS p JOIN CONNECTION_IDS AS c ON c.id = p.connectionId "
        "JOIN CANN_API AS a ON a.connectionId = c.connectionId WHERE p.type = 50001"
    )
    found = defaultdict(set)
    for *op, connection in rows(db, query):
        found[tuple(op)].add(connection)
    return dict(found)


def pairs(db: Path) -> set[frozenset[object]]:
    """Operators that share a connection id which is not that of a launch: forward and backward."""
    query = (
        "SELECT c.connectionId, CAST(p.startNs AS INTEGER) FROM PYTORCH_API AS p JOIN CONNECTION_IDS AS c ON c.id = p.connectionId "
        "LEFT JOIN CANN_API AS a ON a.connectionId = c.connectionId WHERE p.type = 50001 AND a.connectionId IS NULL"
    )
    found = defaultdict(set)
    for connection, start in rows(db, query):
        found[connection].add(start)
    return {frozenset(starts) for starts in found.values()}


@pytest.mark.parametrize(("level", "rank"), CAPTURES)
def test_operators_keep_their_connections(golden, written, level, rank):
    original, _ = paths(golden, level, rank)
    assert launches(written[level, rank][0]) == launches(original)
    assert sum(map(len, launches(original).values())) == 191
    assert pairs(written[level, rank][0]) == pairs(original)


@pytest.mark.parametrize(("level", "rank"), CAPTURES)
def test_reading_what_was_written_gives_the_same_tables(written, level, rank):
    path, tables = written[level, rank]
    again = link(read(path, tables.facts)).check()
    assert sorted(again.filled()) == sorted(tables.filled())
    for name in tables.filled():
        if name == "meta":
            continue
        left, right = tables[name], again[name]
        if name == "queue":  # the current generation names enqueues
            left, right = left.drop("name"), right.drop("name")
        assert_frame_equal(right, left, categorical_as_str=True, rel_tol=1e-12)


@pytest.mark.parametrize(("level", "rank"), CAPTURES)
def test_analysis_comes_back(golden, written, level, rank):
    _, original = paths(golden, level, rank)
    copy = written[level, rank][0].with_name("analysis.db")
    columns = (
        "step, computing, communication_not_overlapped, overlapped, communication, free, stage, bubble, "
        "communication_not_overlapped_and_exclude_receive, preparing"
    )
    assert rows(copy, f"SELECT {columns} FROM StepTraceTime") == rows(original, f"SELECT {columns} FROM StepTraceTime")
    names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    assert rows(copy, names) == rows(original, names)
    if level == 0:
        return
    for table in ("CommAnalyzerTime", "CommAnalyzerBandwidth"):
        assert Counter(rows(copy, f"SELECT * FROM {table}")) == Counter(rows(original, f"SELECT * FROM {table}"))
    key = "hccl_op_name, group_name, src_rank, dst_rank, transport_type, step, type, op_name"
    matrix = f"SELECT {key}, transit_size, transit_time FROM CommAnalyzerMatrix ORDER BY {key}"
    old, new = rows(original, matrix), rows(copy, matrix)
    assert [row[:-2] for row in new] == [row[:-2] for row in old]
    # The vendor sums durations with parts of a nanosecond that its database does not keep.
    assert [row[-2:] for row in new] == [pytest.approx(row[-2:], abs=1e-5) for row in old]


def test_file_is_whole_and_indexed(written):
    path, _ = written[2, 0]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    indexes = rows(path, "SELECT name FROM sqlite_master WHERE type = 'index' ORDER BY name")
    assert indexes == [("CommunicationTaskIndex",), ("TaskIndex",)]
    assert path.stat().st_mode & 0o777 == 0o640


def test_facts_of_the_capture(golden):
    facts = read(paths(golden, 2, 1)[0], Facts()).facts
    assert (facts.rank, facts.device_ids, facts.generation, facts.host_name) == (1, (1,), "G1", "ubuntu")
    assert facts.device_names == {"1": "Ascend910B"}
    assert "ASCEND_GLOBAL_LOG_LEVEL" in facts.metadata["ENV_VARIABLES"]


def test_current_generation_without_framework(golden):
    db = golden / "prof_raw/a2_elementwise_1task/msprof_20260522113005.db"
    tables = read(db, Facts()).check()
    assert not tables.ops.height
    kernel = tables.kernels.filter(tables.kernels["kind"] == "compute").row(0, named=True)
    assert (kernel["name"], kernel["core"], kernel["block_num"]) == ("_Z22elementwise_add_kernelPhS_S_", "AI_VECTOR_CORE", 8)
    assert (kernel["start_ns"], kernel["end_ns"]) == (1779420602901865633, 1779420602901878953)
    assert kernel["block"] is None
    assert tables.kernel_metrics.height == 1
    assert tables.facts.generation == "G3"

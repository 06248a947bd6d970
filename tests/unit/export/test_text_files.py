"""Which file appears when (docs/formats/outputs.md 1.1), and what is kept when writing fails."""

from __future__ import annotations

import errno

import polars as pl
import pytest
from capture_rows import collective, collectives, kernels, op, ops, rows, tables, task

from stepscope.errors import CaptureError
from stepscope.export.parquet import write_parquet
from stepscope.export.text_files import write_text
from stepscope.formats.ascend import task_time
from stepscope.render.atomic import replacing
from stepscope.tables import Facts, Tables

T = 1_700_000_000_000_000_000
ALL_ON = Facts(
    device_kind="npu",
    level="Level2",
    activities=("CPU", "NPU"),
    profile_memory=True,
    l2_cache=True,
    sys_io=True,
    sys_interconnection=True,
    generation="G3",
)
SPAN = {"pid": 7, "tid": 1, "start_ns": T, "end_ns": T + 10}
FRAMES = {
    "ops": ops(op("aten::mm", T, T + 10)),
    "kernels": kernels(task(T + 20, T + 30, op_type="MatMul", core="AI_CORE")),
    "collectives": collectives(collective(T + 40, T + 50, group="1")),
    "transfers": rows(
        "transfers",
        {
            "device": 0,
            "start_ns": T + 40,
            "end_ns": T + 45,
            "collective": 0,
            "plane": 0,
            "task_type": "Memcpy",
            "transport": "SDMA",
            "link": "HCCS",
            "bytes": 8,
            "src_rank": 0,
            "dst_rank": 1,
        },
    ),
    "api_calls": rows("api_calls", {**SPAN, "level": "acl", "name": "aclnnMm"}),
    "memory_events": rows(
        "memory_events", {"pid": 7, "tid": 1, "time_ns": T, "component": "PTA", "device_type": "npu", "device": 0}
    ),
    "allocations": rows("allocations", {"start_ns": T, "bytes": 4, "device_type": "npu", "device": 0}),
    "cache_rates": rows("cache_rates", {"kind": "l2"}, {"kind": "tlb"}),
    "link_summary": rows("link_summary", {"source": "PCIe", "mode": "a"}, {"source": "HCCS", "mode": "b"}),
    "aicpu_tasks": rows("aicpu_tasks", {"time_ns": T, "node": "n"}),
    "counters": rows(
        "counters",
        *(
            {"source": source, "name": "Port 0/Rx", "series": "Rx Packets", "device": 0, "time_ns": T, "value": 1.0}
            for source in ("NIC", "RoCE")
        ),
        {"source": "NPU Module Mem", "name": "HCCL", "series": "KB", "device": 0, "time_ns": T, "value": 1.0},
    ),
}
EVERYTHING = {
    "trace_view.json",
    "kernel_details.csv",
    "operator_details.csv",
    "step_trace_time.csv",
    "op_statistic.csv",
    "api_statistic.csv",
    "communication.json",
    "communication_matrix.json",
    "data_preprocess.csv",
    "memory_record.csv",
    "operator_memory.csv",
    "npu_module_mem.csv",
    "l2_cache.csv",
    "soc_pmu.csv",
    "task_time.csv",
    "pcie.csv",
    "hccs.csv",
    "nic.csv",
    "roce.csv",
}
OF_LEVELS = {"op_statistic.csv", "api_statistic.csv", "communication.json", "communication_matrix.json", "data_preprocess.csv"}


@pytest.mark.parametrize(
    ("facts", "absent"),
    [
        pytest.param(ALL_ON, set(), id="level-2-all-on"),
        pytest.param(ALL_ON.replace(level="Level1"), {"data_preprocess.csv"}, id="level-1"),
        pytest.param(ALL_ON.replace(level="Level0"), OF_LEVELS, id="level-0"),
        pytest.param(
            ALL_ON.replace(level="Level_none"),
            OF_LEVELS | {"kernel_details.csv", "step_trace_time.csv", "npu_module_mem.csv", "task_time.csv"},
            id="no-level",
        ),
        pytest.param(
            ALL_ON.replace(profile_memory=False), {"memory_record.csv", "operator_memory.csv", "npu_module_mem.csv"}, id="no-memory"
        ),
        pytest.param(ALL_ON.replace(l2_cache=False), {"l2_cache.csv", "soc_pmu.csv"}, id="no-l2"),
        pytest.param(ALL_ON.replace(sys_io=False), {"nic.csv", "roce.csv"}, id="no-io"),
        pytest.param(ALL_ON.replace(sys_interconnection=False), {"pcie.csv", "hccs.csv"}, id="no-links"),
        pytest.param(ALL_ON.replace(activities=("NPU",)), {"operator_details.csv"}, id="device-only"),
        pytest.param(
            ALL_ON.replace(activities=("CPU",)),
            EVERYTHING - {"trace_view.json", "operator_details.csv", "memory_record.csv", "operator_memory.csv"},
            id="host-only",
        ),
        pytest.param(Facts(), set(), id="nothing-said-rows-decide"),
    ],
)
def test_files_follow_the_switches(tmp_path, facts, absent):
    written = write_text(Tables({"meta": facts.table(), **FRAMES}), tmp_path / "out")
    assert {path.name for path in written} == EVERYTHING - absent
    assert {path.name for path in (tmp_path / "out").iterdir()} == EVERYTHING - absent


def test_no_rows_no_file(tmp_path):
    assert write_text(Tables({"meta": ALL_ON.table()}), tmp_path / "out") == []
    assert list((tmp_path / "out").iterdir()) == []


def test_a_disk_that_fills_up_keeps_what_is_complete(tmp_path, monkeypatch):
    def fill_up(path, frame, columns, line_end):
        if not frame.height:
            return []
        with replacing(path) as handle:
            handle.write(b"half a li")
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(task_time, "write_csv", fill_up)
    tables = Tables({"meta": Facts(level="Level1").table(), "kernels": FRAMES["kernels"]})
    with pytest.raises(CaptureError) as raised:
        write_text(tables, tmp_path)
    assert raised.value.what == "no space left to write task_time.csv"
    kept = "kernel_details.csv"
    assert raised.value.cause == f"the disk is full; no file of that name was left behind; complete files kept: {kept}"
    assert {path.name for path in tmp_path.iterdir()} == set(kept.split(", "))


def test_parquet_of_every_table_with_rows(tmp_path):
    written = write_parquet(Tables({"meta": ALL_ON.table(), "ops": FRAMES["ops"]}), tmp_path / "parquet")
    assert [path.name for path in written] == ["meta.parquet", "ops.parquet"]
    frame = pl.read_parquet(written[1])
    assert frame["name"].to_list() == ["aten::mm"]
    assert frame["name"].dtype == pl.String


def test_parquet_files_join_by_keys(tmp_path):
    linked = tables(
        ops=ops(op("aten::linear", 0, 100), op("aten::mm", 10, 40, parent=0)),
        kernels=kernels(task(200, 230, op=1), task(230, 260)),
        collectives=collectives(collective(230, 260, kernel=1, op=0)),
    )
    files = {path.stem: pl.read_parquet(path) for path in write_parquet(linked, tmp_path)}
    joined = files["kernels"].join(files["ops"], left_on="op_id", right_on="id", how="left", suffix="_op")
    assert joined.select("id", "name_op").rows() == [(0, "aten::mm"), (1, None)]
    assert files["ops"].select("id", "parent_id").rows() == [(0, None), (1, 0)]
    assert files["collectives"].select("id", "kernel_id", "op_id").rows() == [(0, 1, 0)]

# SPDX-License-Identifier: Apache-2.0
"""Numbers that no clock, counter or allocator shows: counted and left out, never an error of the columnar engine."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stepscope.analyser import export
from stepscope.formats.ascend import kernel_details, memory, step_trace_time, task_time
from stepscope.formats.cann.facts import read_prof_facts
from stepscope.formats.cann.folder import open_prof
from stepscope.formats.framework.clock import read_clock
from stepscope.tables import ALL_TABLES, Tables

HUGE = ["1e300", "-1e300", "inf", "nan", "9223372036854775807", "-9223372036854775808", "9" * 30, "1" * 400]
KERNELS = (
    "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num\n{0},k,MatMul,AI_CORE,{1}\t,{2},0,8\n"
)
TASKS = (
    "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)\n{0},k,AI_CORE,2,3,{1},{2},9\n"
)
ALLOCATIONS = "Name,Size(KB),Allocation Time(us),Device Type\nmalloc,{0},{1},NPU:0\n"
STEPS = "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage\n{0},1,{1},{2},0,0,0,0\n"
FILES = {
    "kernel_details": (kernel_details.read, KERNELS, ["0", "1000.125", "1.5"]),
    "task_time": (task_time.read, TASKS, ["0", "1.5", "7.5"]),
    "operator_memory": (memory.read_allocations, ALLOCATIONS, ["512", "1000.5"]),
    "step_trace_time": (step_trace_time.read, STEPS, ["0", "1.5", "0.5"]),
}


def lost(quality: list[pl.DataFrame]) -> int:
    return sum(frame["count"].sum() for frame in quality)


def rows(found: object) -> list[tuple[object, ...]]:
    return found.compute.rows() if isinstance(found, kernel_details.KernelRows) else found.rows()  # type: ignore[attr-defined]


@pytest.mark.parametrize("huge", HUGE, ids=lambda text: text[:12])
@pytest.mark.parametrize("name", FILES)
def test_cells(tmp_path: Path, name: str, huge: str):
    read, text, good = FILES[name]
    for place in [None, *range(len(good))]:
        path = tmp_path / f"{name}.csv"
        path.write_text(text.format(*(huge if at == place else cell for at, cell in enumerate(good))))
        quality: list[pl.DataFrame] = []
        found = rows(read([path], quality=quality))
        if place is None:
            assert (len(found), lost(quality)) == (1, 0)
        else:
            assert lost(quality) == 1, (name, place)
            whole = [value for row in found for value in row if isinstance(value, (int, float))]
            assert all(abs(value) < 1 << 62 for value in whole)


@pytest.mark.parametrize("digits", ["9" * 30, "-" + "9" * 30, "1" * 400, "18446744073709551615"], ids=lambda text: text[:8])
def test_start_logs(tmp_path: Path, digits: str):
    """Both readers of the log: device records and the framework's own."""
    for part, tail in (("host", ""), ("device_0", ".0")):
        folder = tmp_path / part
        (folder / "data").mkdir(parents=True)
        (folder / f"info.json{tail}").write_text('{"CPU": [{"Frequency": "100.0"}], "DeviceInfo": [{"hwts_frequency": "50"}]}')
        (folder / "sample.json").write_text("{}")
        (folder / f"start_info{tail}").write_text('{"collectionTimeBegin": "1700000000000000", "clockMonotonicRaw": "5"}')
        for log in ("host_start", "dev_start"):
            lines = (f"{key}: {digits}" for key in ("clock_monotonic_raw", "cntvct", "cntvct_diff"))
            (folder / f"{log}.log{tail}").write_text("[Host]\n" + "\n".join(lines))
    prof = open_prof(tmp_path)
    for part in prof.parts:
        times = part.clock.ns(pl.Series([0, 2**63, 2**64 - 1], dtype=pl.UInt64).to_numpy())
        assert (abs(times) < 1 << 62).all()
        assert abs(part.device_monotonic_zero_ns) < 1 << 63
    clock = read_clock(tmp_path, tmp_path, {"start_info": {"syscnt_enable": True}})
    assert clock.to_epoch_ns(pl.Series([0, 10], dtype=pl.Int64)).len() == 2


@pytest.mark.parametrize("huge", ["9223372036854775807", "9" * 30, "1" * 400], ids=lambda text: text[:8])
def test_processes_and_ends_of_a_recording(tmp_path: Path, huge: str):
    (tmp_path / "host" / "data").mkdir(parents=True)
    (tmp_path / "host" / "info.json").write_text(f'{{"pid": "{huge}9"}}')
    (tmp_path / "host" / "start_info").write_text(f'{{"collectionTimeBegin": "{huge}"}}')
    (tmp_path / "host" / "end_info").write_text(f'{{"collectionTimeEnd": "{huge}"}}')
    prof = open_prof(tmp_path)
    assert prof.host is not None
    assert prof.host.pid is None
    found = read_prof_facts(prof)
    assert (found.session_start_ns, found.session_end_ns) == (None, None)
    found.table()


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e300])
@pytest.mark.parametrize("form", ["text", "db"])
def test_exports_of_tables_that_somebody_sent(tmp_path: Path, form: str, value: float):
    """Numbers that no reader of ours gives, in columns that the files show as whole ones."""
    allocation = {"name": "x", "start_ns": 1, "release_ns": 2, "bytes": 4, "device": 0, "release_total_active": value}
    kernel = {"name": "k", "kind": "compute", "start_ns": 1, "end_ns": 2, "device": 0, "stream": 1, "duration_ns": value}
    record = {"component": "PTA", "time_ns": 1, "device": 0, "total_active": value}
    rows = {"allocations": allocation, "kernels": kernel, "memory_events": record}
    tables = Tables({name: ALL_TABLES[name].conform(pl.DataFrame([row])) for name, row in rows.items()})
    files = export(tables, [form], tmp_path, lambda stage: None)
    assert files

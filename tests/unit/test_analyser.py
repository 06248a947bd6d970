"""`analyse`: the documented rules of the call, and nothing lost when it fails."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from capture_rows import rows
from framework_examples import vector

import stepscope
from raw_capture import capture
from stepscope import analyser as module
from stepscope.analyser import OUTPUT, Request, analyse, analyse_captures, jobs_within
from stepscope.capture import open_all
from stepscope.errors import CaptureError
from stepscope.export import text_files
from stepscope.formats.ascend_capture.records import with_recorded_device
from stepscope.formats.framework.records import write
from stepscope.tables import Facts, Tables


def names(folder: Path) -> set[str]:
    return {path.name for path in (folder / OUTPUT).iterdir()}


TEXT = {"trace_view.json", "operator_details.csv", "memory_record.csv", "operator_memory.csv"}
DATABASES = {"ascend_pytorch_profiler_0.db"}


@pytest.mark.parametrize(
    ("export_type", "own", "files"),
    [
        pytest.param(None, ["text"], TEXT | DATABASES, id="capture-says-text"),
        pytest.param(None, ["db"], DATABASES, id="capture-says-db"),
        pytest.param("text", ["db"], TEXT | DATABASES, id="text-means-databases-too"),
        pytest.param(["db", "db"], ["text"], DATABASES, id="duplicates"),
    ],
)
def test_export_type_decides_the_files(tmp_path, export_type, own, files):
    folder = capture(tmp_path, _export_type=own)
    (result,) = analyse(str(folder), export_type=export_type)
    assert result.ok, result.error
    assert names(folder) == files | {"analyse.done"}
    assert set(result.files) == files


@pytest.mark.slow  # starts workers
@pytest.mark.parametrize("jobs", [1, 2])
def test_names_that_look_like_formulas_are_marked_when_asked_for(tmp_path, jobs):
    """In this process and in workers; by default the name stands there as the script wrote it."""
    found = {}
    for safe in (False, True):
        records = vector()
        records["op_range"] = records["op_range"].with_columns(name=pl.lit("=cmd|' /C calc'!A0"))
        folders = [capture(tmp_path / str(safe), f"node_{rank}_20260101000000000_ascend_pt") for rank in range(jobs)]
        for folder in folders:
            write(folder / "FRAMEWORK", records)
        results = analyse_captures(open_all(str(tmp_path / str(safe))), Request(safe_csv=safe), jobs=jobs)
        assert all(result.ok for result in results), results
        found[safe] = [(folder / OUTPUT / "operator_details.csv").read_bytes() for folder in folders]
    for plain, marked in zip(found[False], found[True], strict=True):
        assert b"\r\n=cmd|' /C calc'!A0," in plain
        assert marked == plain.replace(b"=cmd", b"'=cmd")


def test_the_function_marks_formulas_too(tmp_path):
    folder = capture(tmp_path)
    records = vector()
    write(folder / "FRAMEWORK", records | {"op_range": records["op_range"].with_columns(name=pl.lit("@op"))})
    (result,) = stepscope.analyse(str(folder), safe_csv=True)
    assert result.ok
    assert b"\r\n'@op," in (folder / OUTPUT / "operator_details.csv").read_bytes()


@pytest.mark.parametrize("wrong", ["csv", [], ["text", "x"], 7])
def test_wrong_export_type_falls_back_with_a_warning(tmp_path, wrong):
    folder = capture(tmp_path, _export_type=["db"])
    with pytest.warns(UserWarning, match="export_type"):
        analyse(str(folder), export_type=wrong)
    assert names(folder) == DATABASES | {"analyse.done"}


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True, 10**6])
def test_wrong_process_number_falls_back_with_a_warning(tmp_path, wrong):
    folder = capture(tmp_path, _export_type=["db"])
    with pytest.warns(UserWarning, match="max_process_number"):
        (result,) = analyse(str(folder), max_process_number=wrong)
    assert result.ok


def test_the_package_gives_the_function_each_time():
    # A module of the function's name would take its place once it is imported.
    assert stepscope.analyse is analyse
    assert stepscope.analyse is analyse


def test_a_broken_capture_does_not_stop_the_others(tmp_path):
    good = capture(tmp_path, "a_1_20260101000000000_ascend_pt", _export_type=["db"])
    broken = tmp_path / "b_1_20260101000000000_ascend_pt" / OUTPUT
    broken.mkdir(parents=True)
    (broken / "ascend_pytorch_profiler_0.db").write_text("rubbish")
    results = analyse(str(tmp_path), max_process_number=1)
    assert [result.ok for result in results] == [True, False]
    assert names(good) == DATABASES | {"analyse.done"}


@pytest.mark.slow  # starts worker processes
def test_several_captures_run_in_processes(tmp_path):
    folders = [capture(tmp_path, f"{letter}_1_20260101000000000_ascend_pt", _export_type=["db"]) for letter in "ab"]
    results = analyse_captures(open_all(tmp_path), Request(), jobs=2)
    assert [(Path(result.path), result.ok) for result in results] == [(folder, True) for folder in folders]


SCRIPT = """
import os, sys
print("SCRIPT RUNS")
os.cpu_count = lambda: 8
import stepscope
print([result.ok for result in stepscope.analyse("runs", max_process_number=8, export_type="db")])
"""


@pytest.mark.slow  # starts worker processes
def test_a_script_without_a_guard_runs_once(tmp_path):
    """The README's own call; multiprocessing would import the script again in each process."""
    for letter in "abc":
        capture(tmp_path / "runs", f"{letter}_1_20260101000000000_ascend_pt")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "polars.py").write_text("raise SystemExit('a module of the script in place of the library')")
    (tmp_path / "script.py").rename(tmp_path / "runs" / "script.py")
    done = subprocess.run(
        [sys.executable, "runs/script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "SCRIPT RUNS\n[True, True, True]\n", "")


def test_the_trace_holds_the_capture(tmp_path):
    folder = capture(tmp_path)
    analyse(str(folder))
    events = json.loads((folder / OUTPUT / "trace_view.json").read_text())
    spans = {event["name"]: (event["ts"], event["dur"]) for event in events if event["ph"] == "X"}
    assert spans["aten::mm"] == ("1700000000000000.000", 250.0)
    assert spans["Dequeue@MatMul"] == ("1700000000000150.000", 40.0)
    assert spans["Enqueue@MatMul"] == ("1700000000000100.000", 20.0)
    assert spans["nn.Module: Linear_0"] == ("1700000000000010.000", 890.0)
    assert spans["GC"] == ("1700000000000300.000", 1500.0)
    with sqlite3.connect(folder / OUTPUT / "ascend_pytorch_profiler_0.db") as database:
        assert database.execute("SELECT count(*) FROM PYTORCH_API").fetchone() == (4,)
    database.close()


def test_modes_and_log(tmp_path):
    folder = capture(tmp_path)
    analyse(str(folder))
    assert (folder / OUTPUT).stat().st_mode & 0o777 == 0o750
    assert {path.stat().st_mode & 0o777 for path in (folder / OUTPUT).iterdir()} == {0o640}
    (log,) = (folder / "logs").iterdir()
    assert "analysed in" in log.read_text()


def test_out_leaves_the_capture_untouched(tmp_path):
    folder = capture(tmp_path / "in")
    before = sorted(path.name for path in folder.iterdir())
    (result,) = analyse_captures(open_all(folder), Request(exports=("text",), out=tmp_path / "out"), jobs=1)
    assert result.ok, result.error
    assert sorted(path.name for path in folder.iterdir()) == before
    derived = tmp_path / "out" / folder.name
    assert names(derived) >= TEXT
    assert (derived / "profiler_info_0.json").exists()


def test_parsed_files_that_are_the_only_source_are_not_replaced(tmp_path):
    folder = capture(tmp_path)
    analyse(str(folder))
    for path in (folder / "FRAMEWORK").iterdir():
        path.unlink()
    (folder / "FRAMEWORK").rmdir()
    trace = (folder / OUTPUT / "trace_view.json").read_bytes()
    (result,) = analyse(str(folder))
    assert not result.ok
    assert "--out" in (result.error or "")
    assert (folder / OUTPUT / "trace_view.json").read_bytes() == trace


def test_text_read_back_gives_the_same_tables(tmp_path):
    folder = capture(tmp_path)
    raw = stepscope.open(folder).tables
    analyse(str(folder))
    text = open_all(folder, source="text")[0].tables
    columns = ["pid", "tid", "start_ns", "end_ns", "name", "seq", "fwd_thread", "shapes", "dtypes", "stack", "parent"]
    assert text.ops.select(columns).equals(raw.ops.select(columns))
    assert text.queue.equals(raw.queue)
    assert text.gc_pauses.equals(raw.gc_pauses)


def test_full_disk_keeps_the_old_results(tmp_path, monkeypatch):
    folder = capture(tmp_path)
    analyse(str(folder))
    before = {path.name: path.read_bytes() for path in (folder / OUTPUT).iterdir()}

    def full(*_args: object) -> list[Path]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(text_files, "write_text", full)
    (result,) = analyse(str(folder))
    assert not result.ok
    assert "no space left" in (result.error or "")
    assert {path.name: path.read_bytes() for path in (folder / OUTPUT).iterdir()} == before
    assert not [path.name for path in folder.iterdir() if "building" in path.name]


def test_our_own_fault_is_a_result_with_the_traceback_in_the_log(tmp_path, monkeypatch):
    folder = capture(tmp_path)
    monkeypatch.setattr(text_files, "write_text", lambda *_: 1 / 0)
    (result,) = analyse(str(folder))
    assert not result.ok
    assert "ZeroDivisionError" in (result.error or "")
    assert "Traceback" in next((folder / "logs").iterdir()).read_text()


def test_a_read_only_capture_needs_out(tmp_path, monkeypatch):
    captures = open_all(capture(tmp_path))
    monkeypatch.setattr(module.os, "access", lambda *_: False)
    (result,) = analyse_captures(captures, Request(), jobs=1)
    assert not result.ok
    assert "--out" in (result.error or "")


def test_an_output_folder_that_is_a_link_is_refused(tmp_path):
    folder = capture(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (folder / OUTPUT).symlink_to(tmp_path / "elsewhere")
    (result,) = analyse(str(folder))
    assert not result.ok
    assert "symbolic link" in (result.error or "")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_same_name_into_one_out_folder_is_refused(tmp_path):
    captures = open_all(capture(tmp_path / "a")) + open_all(capture(tmp_path / "b"))
    with pytest.raises(CaptureError, match="same folder"):
        analyse_captures(captures, Request(out=tmp_path / "out"), jobs=1)


@pytest.mark.parametrize(("sizes", "jobs"), [([5, 50], 4), ([5, 500], 2), ([], 4)], ids=["small", "one-large", "none"])
def test_small_captures_get_a_core_each(monkeypatch, sizes, jobs):
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: set(range(4)))
    monkeypatch.setattr(module, "source_bytes", lambda capture: capture << 20)
    assert module.default_jobs(sizes) == jobs


def test_memory_limit_reduces_the_jobs(tmp_path, monkeypatch):
    captures = open_all(capture(tmp_path))
    monkeypatch.setattr(module, "source_bytes", lambda capture: 1_000_000)
    need = 1_000_000 * module.MEMORY_PER_SOURCE_BYTE
    assert jobs_within(captures, 8, None) == 8
    assert jobs_within(captures, 8, int(need * 3.5)) == 3
    assert jobs_within(captures, 8, 1) == 1


def test_missing_path_is_a_clear_error(tmp_path):
    with pytest.raises(CaptureError, match="no such file or folder"):
        analyse(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(("recorded", "found"), [((3,), [3, None]), ((3, 4), [0, None]), ((), [0, None])])
def test_memory_is_that_of_the_one_recorded_device(recorded, found):
    events = rows(
        "memory_events", {"time_ns": 1, "device_type": "npu", "device": 0}, {"time_ns": 2, "device_type": "cpu", "device": None}
    )
    tables = with_recorded_device(Tables({"meta": Facts(device_ids=recorded).table(), "memory_events": events}))
    assert tables.check().memory_events["device"].to_list() == found

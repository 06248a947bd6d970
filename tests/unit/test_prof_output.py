"""data_simplification: what the vendor's tool would leave in a PROF folder is there, or is gone."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import snapshot

from stepscope.analyser import OUTPUT, Request, analyse_captures
from stepscope.capture import open_all, open_capture

pytestmark = pytest.mark.slow  # each analyses a capture at least once


@pytest.fixture
def capture(tmp_path) -> Path:
    """One of two ranks, at level 1."""
    return sorted(snapshot.unpack("npu-ranks", tmp_path).glob("*_ascend_pt"))[0]


def analysed(capture: Path, simplification: bool | None, **more) -> Path:
    (info,) = capture.glob("profiler_info_*.json")
    content = json.loads(info.read_text())
    content["config"]["experimental_config"]["_data_simplification"] = simplification
    info.write_text(json.dumps(content))
    (result,) = analyse_captures(open_all(str(capture)), Request(**more), jobs=1)
    assert result.ok, result.error
    (prof,) = capture.glob("PROF_*")
    return prof


def added(prof: Path) -> set[str]:
    """Files beside the raw data; the time that their names carry as `*`."""
    raw = ("host", "device_0")
    found = [path.relative_to(prof) for path in prof.rglob("*") if path.is_file()]
    return {str(path.with_name(path.name.replace(prof.name.split("_")[2][:14], "*"))) for path in found if path.parts[0] not in raw}


def without_logs(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("mindstudio_profiler_log/")}


VENDORS = {
    "mindstudio_profiler_output/op_summary_*.csv",
    "mindstudio_profiler_output/op_statistic_*.csv",
    "mindstudio_profiler_output/api_statistic_*.csv",
    "mindstudio_profiler_output/task_time_*.csv",
    "mindstudio_profiler_output/communication_statistic_*.csv",
    "mindstudio_profiler_output/msprof_*.json",
    "analyze/communication.json",
    "analyze/communication_matrix.json",
    "msprof_*.db",
}


def test_switched_off_the_vendors_files_are_there_and_switched_on_they_go(capture):
    for value in (False, None, True):  # None is off, too
        prof = analysed(capture, value)
        assert without_logs(added(prof)) == (set() if value else VENDORS)
        assert any(name.startswith("mindstudio_profiler_log/") for name in added(prof)) is not bool(value)
        assert (prof / "host" / "data").is_dir()
        assert (capture / OUTPUT / "analyse.done").exists()


def test_the_files_can_be_read_instead_of_the_raw_data(capture):
    prof = analysed(capture, False)
    kernels = open_capture(capture, source="parsed").kernels.filter(kind="compute")
    with next(prof.glob("mindstudio_profiler_output/op_summary_*.csv")).open(newline="") as file:
        summary = [row for row in csv.DictReader(file) if row["Task Type"] != "COMMUNICATION"]
    assert kernels.height == len(summary) == open_capture(capture, source="raw").kernels.filter(kind="compute").height > 0


def test_databases_only(capture):
    prof = analysed(capture, False, exports=("db",))
    assert without_logs(added(prof)) == {"msprof_*.db", "analyze/communication_analyzer.db"}


def test_files_of_the_vendors_own_tool_stay_as_they_are(capture):
    (prof,) = capture.glob("PROF_*")
    (prof / "mindstudio_profiler_output").mkdir()
    theirs = prof / "mindstudio_profiler_output" / "msprof_20300101000000.json"
    theirs.write_text("[]")
    analysed(capture, False)
    assert added(prof) == {"mindstudio_profiler_output/msprof_20300101000000.json"}


def test_a_capture_that_does_not_say_stays_as_it_is(capture):
    (info,) = capture.glob("profiler_info_*.json")
    content = json.loads(info.read_text())
    del content["config"]["experimental_config"]["_data_simplification"]
    info.write_text(json.dumps(content))
    (result,) = analyse_captures(open_all(str(capture)), Request(), jobs=1)
    assert result.ok, result.error
    (prof,) = capture.glob("PROF_*")
    assert added(prof) == set()

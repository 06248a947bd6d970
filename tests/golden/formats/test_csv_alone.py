# SPDX-License-Identifier: Apache-2.0
"""Csv files of a real capture without its timeline: one alone, or a folder of them with something else beside."""

from __future__ import annotations

import csv
import gzip
import shutil
from pathlib import Path

import pytest

from stepscope.analysis import statistics
from stepscope.analysis.step_time import step_times
from stepscope.capture import open_all, open_capture
from stepscope.export import statistics_csv

OUTPUT = Path("ascend_pt/text/level2/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT")


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("kernel_details", "kernels"),
        ("operator_details", "op_times"),
        ("step_trace_time", "step_times"),
        ("l2_cache", "cache_rates"),
    ],
)
def test_one_csv_file_opens(golden, tmp_path, name, table):
    path = Path(shutil.copy(golden / OUTPUT / f"{name}.csv", tmp_path))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    tables = open_capture(path).tables
    listed = tables[table].height + (tables.collectives.height if table == "kernels" else 0)
    assert listed >= len(rows) > 0
    if table == "kernels":
        steps = {int(row["Step Id"]) for row in rows if row["Step Id"]}
        assert set(tables.kernels["step"].drop_nulls()) == steps


def test_a_foreign_json_beside_csv_files_is_no_obstacle(golden, tmp_path):
    for path in (golden / OUTPUT).glob("*.csv"):
        shutil.copy(path, tmp_path)
    (tmp_path / "notes.json").write_text('{"author": "somebody"}')
    (capture,) = open_all(tmp_path)
    assert capture.tables.kernels.height > 0
    assert capture.tables.step_times["step"].to_list() == [50]


@pytest.mark.parametrize("rank", ["rank0_ascend_pt", "rank1_ascend_pt"])
def test_steps_without_the_timeline(golden, tmp_path, rank):
    """Step numbers, when the device began and Preparing are those that the timeline gives."""
    source = golden / OUTPUT.parents[1] / rank / OUTPUT.name
    for path in (*source.glob("*.csv"), *source.glob("communication*.json")):
        shutil.copy(path, tmp_path)
    (tables,) = (capture.tables for capture in open_all(tmp_path))
    with (source / "step_trace_time.csv").open(newline="") as file:
        (theirs,) = csv.DictReader(file)
    (step,) = tables.steps.iter_rows(named=True)
    assert step["step"] == int(theirs["Step"])
    assert step["device_start_ns"] - step["start_ns"] == round(float(theirs["Preparing"]) * 1000)
    marked = open_capture(source).tables.steps
    assert step["start_ns"] == pytest.approx(marked["start_ns"][0], abs=1000)
    (times,) = step_times(tables).iter_rows(named=True)
    assert [times[key] / 1000 for key in ("computing_ns", "free_ns", "stage_ns", "preparing_ns")] == pytest.approx(
        [float(theirs[title]) for title in ("Computing", "Free", "Stage", "Preparing")]
    )
    assert tables.link_extremes.height > 0


@pytest.mark.parametrize(
    ("name", "text", "table"),
    [
        ("pcie", "Device_id,Mode,Min,Max,Avg\r\n0,Tx_p_avg(MB/s),0,3,1.5\r\n", "link_summary"),
        ("hccs", "Device_id,Mode,Max,Min,Average\r\n0,Tx (MB/s),3,0,1.5\r\n", "link_summary"),
        (
            "nic",
            "Device_id,Timestamp(us),Bandwidth(MB/s),Rx Bandwidth efficiency(%)\r\n0,1736412474730135.222,100,1\r\n",
            "counters",
        ),
        (
            "roce",
            "Device_id,Timestamp(us),Bandwidth(MB/s),Rx Bandwidth efficiency(%)\r\n0,1736412474730135.222,100,1\r\n",
            "counters",
        ),
    ],
)
def test_one_csv_file_of_the_hardware_opens(tmp_path, name, text, table):
    path = tmp_path / f"{name}.csv"
    path.write_bytes(text.encode())
    assert open_capture(path).tables[table].height > 0


def _table_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside-others"])
@pytest.mark.parametrize("name", ["api_statistic", "op_statistic"])
def test_figures_of_calls_and_types_without_the_events(golden, tmp_path, name, alone):
    """What the vendor summed up is what `top` and our own file say, when the events are gone."""
    from stepscope.top import top

    figures, write = getattr(statistics, name), getattr(statistics_csv, f"write_{name}")
    (tmp_path / "in").mkdir()
    for beside in (name,) if alone else (name, "step_trace_time", "operator_memory"):
        shutil.copy(golden / OUTPUT / f"{beside}.csv", tmp_path / "in")
    tables = open_capture(tmp_path / "in" / f"{name}.csv" if alone else tmp_path / "in").tables
    theirs = _table_of(golden / OUTPUT / f"{name}.csv")
    assert list(figures(tables).select("level" if name[0] == "a" else "op_type", "total_ns").iter_rows()) == [
        (row.get("Level") or row["OP Type"], round(float(row.get("Time(us)") or row["Total Time(us)"]) * 1000)) for row in theirs
    ]
    (ours,) = write(tables, tmp_path)
    assert [{title: row[title] for title in theirs[0]} for row in _table_of(ours)] == theirs
    shown = top(tables, by="api" if name == "api_statistic" else "kernel")
    assert shown["calls"].sum() == sum(int(row["Count"]) for row in theirs)
    assert shown["total_ms"].is_sorted(descending=True)
    assert not tables.quality.filter(tables.quality["count"] > 0).height


def test_events_go_before_the_figures_of_the_vendor(golden):
    tables = open_capture(golden / OUTPUT).tables
    assert tables.api_calls.height > 0
    assert tables.api_times.height == tables.op_type_times.height == 0


MSPROF = Path("prof_raw/a2_elementwise_1task/official_output")


@pytest.mark.parametrize(
    ("kind", "table"),
    [("op_summary", "kernels"), ("task_time", "kernels"), ("op_statistic", "op_type_times"), ("api_statistic", "api_times")],
)
@pytest.mark.parametrize("renamed", [False, True], ids=["own-name", "renamed"])
def test_one_csv_file_of_msprof_opens(golden, tmp_path, kind, table, renamed):
    (source,) = (golden / MSPROF).glob(f"{kind}_*.csv")
    path = Path(shutil.copy(source, tmp_path / ("copy of mine.csv" if renamed else source.name)))
    assert open_capture(path).tables[table].height == len(_table_of(path))


def test_the_files_of_msprof_without_their_folder(golden, tmp_path):
    """What is told by the csv files is known beside the timeline, and without it."""
    for path in (golden / MSPROF).iterdir():
        shutil.copy(path, tmp_path)
    (whole,) = (capture.tables for capture in open_all(tmp_path))
    assert (whole.api_calls.height, whole.kernels.height, whole.kernel_metrics.height) == (18, 4, 1)
    for path in tmp_path.glob("*.json"):
        path.unlink()
    (tables,) = (capture.tables for capture in open_all(tmp_path))
    assert (tables.api_calls.height, tables.kernels.height, tables.kernel_metrics.height) == (0, 4, 1)
    assert tables.api_times.height == 12
    assert tables.kernels["name"].cast(str).to_list().count("_Z22elementwise_add_kernelPhS_S_") == 1


def test_a_task_in_two_files_of_msprof_counts_once(golden, tmp_path):
    """task_time names functions and op_summary operators; with the timeline, which is packed here, the same kernels are there."""
    source = golden / "prof_raw/a2_pypto_mix_aicpu_event/official_output"
    for path in source.glob("*_*"):
        shutil.copy(path, tmp_path)
    (whole,) = (capture.tables for capture in open_all(tmp_path))
    assert whole.api_calls.height == 2728
    for path in tmp_path.glob("*.json.gz"):
        path.unlink()
    (tables,) = (capture.tables for capture in open_all(tmp_path))
    (tasks,) = (_table_of(path) for path in tmp_path.glob("task_time_*.csv"))
    assert tables.kernels.height == whole.kernels.height == len(tasks)
    for column in ("name", "kernel_name", "kind", "start_ns"):
        assert sorted(map(str, tables.kernels[column])) == sorted(map(str, whole.kernels[column]))


@pytest.mark.parametrize(("name", "table"), [("communication", "collective_times"), ("communication_matrix", "link_extremes")])
@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_communication_files_open_by_themselves(golden, tmp_path, name, table, folder):
    path = Path(shutil.copy(golden / OUTPUT / f"{name}.json", tmp_path))
    (capture,) = open_all(tmp_path if folder else path)
    assert capture.tables[table].height > 0


@pytest.mark.parametrize("name", ["kernels of rank {}.csv", "kernel_details_{}.csv"])
def test_renamed_files_of_several_ranks_are_captures_of_their_own(golden, tmp_path, name):
    for rank in range(2):
        source = golden / OUTPUT.parents[1] / f"rank{rank}_ascend_pt" / OUTPUT.name / "kernel_details.csv"
        shutil.copy(source, tmp_path / name.format(rank))
    (tmp_path / "prices.csv").write_text("Name,Duration(us),Price\nx,1,2\n")
    assert [capture.tables.kernels.height for capture in open_all(tmp_path)] == [187, 187]


def test_a_packed_timeline_is_the_timeline(golden, tmp_path):
    capture = shutil.copytree(golden / OUTPUT.parent, tmp_path / OUTPUT.parent.name)
    plain = capture / OUTPUT.name / "trace_view.json"
    packed = plain.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(plain.read_bytes(), 1))
    plain.unlink()
    whole, again = (open_capture(path).tables for path in (golden / OUTPUT.parent, capture))
    assert {name: frame.height for name, frame in again.items()} == {name: frame.height for name, frame in whole.items()}
    for path in (capture / OUTPUT.name).glob("*.csv"):
        path.unlink()
    assert open_capture(capture).tables.kernels.height > 0

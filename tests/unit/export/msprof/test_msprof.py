"""What msprof writes for a PROF_* folder: rules of its files that can be checked by hand."""

from __future__ import annotations

import csv
import json
import sqlite3

import polars as pl
import pytest
from capture_rows import MAIN, api, api_calls, collective, collectives, kernels, rows, tables, task

from stepscope.export.kernel_details import waited
from stepscope.export.msprof import write_msprof
from stepscope.formats.ascend.metric_names import csv_columns
from stepscope.render.csv_file import thousandths
from stepscope.tables import Facts

EPOCH = 1_784_177_114_188_308_150  # a time of today: floats of microseconds are 0.25 apart
STAMP = "20260716124520"


def files(folder, **frames):
    facts = frames.pop("facts", Facts(device_kind="npu"))
    written = write_msprof(tables(meta=facts.table(), **frames), folder, STAMP)
    return {path.name.replace(f"_{STAMP}", ""): path for path in written}


def lines(path):
    return list(csv.reader(path.read_text().splitlines()))


def cells(path, *titles):
    return [tuple(row[title] for title in titles) for row in csv.DictReader(path.read_text().splitlines())]


def events(path, phase):
    return [event for event in json.loads(path.read_bytes()) if event["ph"] == phase]


def test_waiting_time_is_what_floats_of_microseconds_leave():
    # 308.150, 543.715 and 581.056 us become 308.25, 543.75 and 581.0; from these the durations are taken.
    starts = pl.Series([EPOCH, EPOCH + 235_565, EPOCH + 272_906])
    frame = pl.DataFrame({"start_ns": starts, "end_ns": starts + pl.Series([27_541, 16_180, 14_720])})
    assert waited(frame).to_list() == [None, 207_959, 21_070]


def test_waiting_time_text_and_the_rows_of_op_summary(tmp_path):
    frames = {
        "kernels": kernels(
            task(1_000, 3_500, name="a,b", op_type="Add", input_shapes="2,3;4", block_num=8, core="AI_CORE", task_id=1, stream=2),
            task(5_000, 6_000, kind="other", name="EVENT_RECORD"),
            task(9_000, 9_020, name="c"),
        ),
        "collectives": collectives(collective(4_000, 8_000, name="hcom_allReduce__1_0_1", op_type="hcom_allReduce_")),
    }
    path = files(tmp_path, **frames)["op_summary.csv"]
    assert b"\r" not in path.read_bytes()
    titles = (
        "Op Name",
        "Task Type",
        "Task Start Time(us)",
        "Task Duration(us)",
        "Task Wait Time(us)",
        "Block Num",
        "Mix Block Num",
    )
    assert cells(path, *titles) == [
        ("a,b", "AI_CORE", "1.000\t", "2.500", "0", "8", "0"),
        ("hcom_allReduce__1_0_1", "COMMUNICATION", "4.000\t", "4.000", "0.500000", "0", "N/A"),
        ("c", "N/A", "9.000\t", "0.020", "1.000000", "0", "0"),
    ]
    assert cells(path, "Input Shapes", "Model ID", "Task ID")[0] == ('"2,3;4"', "4294967295", "1")


def test_counters_stand_after_the_context(tmp_path):
    values = {"aic_total_time": 11_988.333, "aic_total_cycles": 158_246.0, "aic_mac_ratio": 0.0625, "cube_utilization": 0.0}
    metrics = pl.DataFrame({"kernel": [0], **{name: [value] for name, value in values.items()}})
    frames = {"kernels": kernels(task(0, 10), task(20, 30)), "kernel_metrics": metrics}
    header, first, second = lines(files(tmp_path, **frames, facts=Facts(aic_metrics="PipeUtilization"))["op_summary.csv"])
    at = header.index("Context ID") + 1
    assert header[at : at + 4] == ["aicore_time(us)", "aic_total_cycles", "aic_mac_time(us)", "aic_mac_ratio"]
    assert first[at : at + 4] == ["11.988", "158246", "N/A", "0.063"]
    assert (header[-1], first[-1], second[-1]) == ("cube_utilization(%)", "0.000", "N/A")


def test_operations_are_real_numbers_and_cycles_are_not(tmp_path):
    metrics = pl.DataFrame({"kernel": [0], "aic_total_cycles": [41.0], "aic_cube_fops": [335_872.0]})
    frames = {"kernels": kernels(task(0, 10)), "kernel_metrics": metrics, "facts": Facts(aic_metrics="ArithmeticUtilization")}
    assert cells(files(tmp_path, **frames)["op_summary.csv"], "aic_total_cycles", "aic_cube_fops") == [("41", "335872.0")]


def test_rounding_to_thousandths_goes_by_what_a_float_looks_like():
    values = pl.Series([0.5055, 0.0625, 0.0005, -0.0625, None, 1.0])
    assert thousandths(values).to_list() == [506, 63, 1, -63, None, 1000]


def test_metrics_of_another_chip_keep_their_names():
    names = ["aic_total_time", "total_cycles", "vec_exe_time", "vec_exe_ratio", "memory_bound"]
    expected = ("aicore_time(us)", "total_cycles", "vec_exe_time(us)", "vec_exe_ratio", "memory_bound")
    assert csv_columns("PipelineExecuteUtilization", names) == csv_columns("PipeUtilization", names) == expected


def test_task_time_cuts_and_names_the_function(tmp_path):
    frames = {
        "kernels": kernels(
            task(100, 128, duration_ns=27.9, name="op", kernel_name="Add_1", core="AI_CORE", task_type="AI_CORE", task_id=1),
            task(200, 210, name="op", task_type="KERNEL_AICPU", task_id=2),
            task(300, 310, kind="memcpy", name="MEMCPY_ASYNC", task_type="SDMA_SQE", host_task_type="MEMCPY_ASYNC", task_id=3),
        )
    }
    path = files(tmp_path, **frames)["task_time.csv"]
    assert cells(path, "kernel_name", "kernel_type", "task_time(us)", "task_stop(us)") == [
        ("Add_1", "AI_CORE", "0.027", "0.128\t"),
        ("N/A", "KERNEL_AICPU", "0.010", "0.210\t"),
        ("N/A", "MEMCPY_ASYNC", "0.010", "0.310\t"),
    ]


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        pytest.param([None, 0], [1], id="mixed-kernel"),
        pytest.param([None, 0, 1], [1], id="graph"),
        pytest.param([None, 1, 2], [0, 1, 2], id="graph-without-part-0"),
        pytest.param([None, 1, 0], [0, 1, 2], id="another-part-first"),
        pytest.param([None, None], [0, 1], id="run-twice"),
    ],
)
def test_parts_of_a_task_in_task_time(tmp_path, parts, kept):
    run = [task(10 * at, 10 * at + 5, task_id=7, batch_id=0, context_id=part) for at, part in enumerate(parts)]
    found = files(tmp_path, kernels=kernels(*run, task(90, 95, task_id=8)))
    assert cells(found["task_time.csv"], "task_start(us)") == [(f"0.0{at}0\t",) for at in (*kept, 9)]


def test_a_task_with_parts_is_not_shown_itself(tmp_path):
    run = kernels(
        task(0, 9, task_id=7, batch_id=0), task(1, 8, task_id=7, batch_id=0, context_id=0), task(20, 25, task_id=7, batch_id=1)
    )
    shown = events(files(tmp_path, kernels=run)["msprof.json"], "X")
    assert [event["ts"] for event in shown if event["name"] == "MatMul"] == ["0.001", "0.020"]


def test_statistics_have_no_trailing_zeros(tmp_path):
    frames = {
        "kernels": kernels(task(0, 13_320, op_type="Add", core="AI_CORE")),
        "api_calls": api_calls(api(0, 2_000, 1), api(0, 1_000, 2), api(0, 1_500, 3, "acl", "aclrtFree")),
        "collectives": collectives(collective(0, 1_000, op_type="hcom_send_")),
    }
    found = files(tmp_path, **frames)
    assert lines(found["op_statistic.csv"])[1:] == [["0", "Add", "AI_CORE", "1", "13.32", "13.32", "13.32", "13.32", "100"]]
    assert lines(found["api_statistic.csv"])[1:] == [
        ["host", "acl", "aclrtFree", "1.5", "1", "1.5", "1.5", "1.5", "0"],
        ["host", "node", "launch", "3", "2", "1.5", "1", "2", "0.25"],
    ]
    assert lines(found["communication_statistic.csv"])[1:] == [["0", "hcom_send_", "1", "1", "1", "1", "1", "100"]]


EVERYTHING = {
    "kernels": kernels(task(0, 10, op_type="Add", core="AI_CORE")),
    "api_calls": api_calls(api(0, 5, 1)),
    "collectives": collectives(collective(0, 10, op_type="hcom_send_")),
}
ALWAYS = {"op_summary.csv", "task_time.csv", "api_statistic.csv", "msprof.json", "msprof.db"}


@pytest.mark.parametrize(
    ("level", "names", "expected"),
    [
        pytest.param("Level1", EVERYTHING, ALWAYS | {"op_statistic.csv", "communication_statistic.csv"}, id="level-1"),
        pytest.param("Level0", EVERYTHING, ALWAYS, id="level-0-has-no-types"),
        pytest.param("Level1", ("api_calls",), {"api_statistic.csv", "msprof.json", "msprof.db"}, id="host-only"),
        pytest.param("Level1", ("collectives",), {"op_summary.csv", "communication_statistic.csv", "msprof.json", "msprof.db"},
                     id="collectives-only"),
        pytest.param("Level1", (), set(), id="nothing"),
    ],
)  # fmt: skip
def test_which_files_appear(tmp_path, level, names, expected):
    frames = {name: EVERYTHING[name] for name in names}
    assert set(files(tmp_path, **frames, facts=Facts(level=level))) == expected


def test_a_group_is_shown_by_its_text_where_that_is_known(tmp_path):
    known = collective(0, 10, name="a", group="123", group_name="host%eth0_7", group_index=0)
    unknown = collective(20, 30, name="b", group="456", group_index=1)
    found = events(files(tmp_path, collectives=collectives(known, unknown))["msprof.json"], "M")
    lanes = [event["args"]["name"] for event in found if event["name"] == "thread_name"]
    assert [name for name in lanes if name.startswith("Group")] == ["Group host%eth0_7 Communication", "Group 456 Communication"]


def test_level_0_names_collectives_but_not_their_types(tmp_path):
    told = {
        level: files(tmp_path / level, **EVERYTHING, facts=Facts(level=level))["op_summary.csv"] for level in ("Level0", "Level1")
    }
    assert [kind for (kind,) in cells(told["Level1"], "OP Type")] == ["Add", "hcom_send_"]
    assert [kind for (kind,) in cells(told["Level0"], "OP Type")] == ["N/A", "N/A"]


def test_devices_stand_in_the_order_of_their_numbers_as_text(tmp_path):
    order = (0, 1, 2, 10, 11)
    path = files(tmp_path, kernels=kernels(*(task(10, 20 + number, device=number) for number in order)))["op_summary.csv"]
    assert [number for (number,) in cells(path, "Device_id")] == ["0", "1", "10", "11", "2"]


def test_arrows_start_at_launches_and_events_and_end_at_their_tasks(tmp_path):
    frames = {
        "api_calls": api_calls(
            api(0, 5, 1),
            api(10, 15, 2),
            api(20, 25, 3, "acl", "aclrtRecordEvent"),
            api(30, 35, 4, "acl", "aclrtMemcpyAsync"),
            api(40, 45, 5, "acl", "aclrtFree"),
            api(50, 55, 6, "acl", "aclrtSetOpExecuteTimeOut"),
        ),
        "kernels": kernels(
            task(100, 110, connection_id=1),
            task(120, 121, connection_id=3, kind="event", name="EVENT_RECORD"),
            task(130, 140, connection_id=4, kind="memcpy", name="MEMCPY_ASYNC"),
            task(150, 160, connection_id=6, kind="other", name="TASK_TIMEOUT_SET"),
        ),
    }
    path = files(tmp_path, **frames)["msprof.json"]
    starts = {event["id"]: event["ts"] for event in events(path, "s")}
    assert starts == {str(number << 32): f"0.{at:03d}" for number, at in ((1, 0), (2, 10), (3, 20), (4, 30))}
    ends = {event["id"]: event["ts"] for event in events(path, "f")}
    assert ends == {str(number << 32): f"0.{at}" for number, at in ((1, 100), (3, 120), (4, 130))}


def test_timeline_has_exact_durations_and_layers_have_cut_ones(tmp_path):
    # 1763/64 ns: a duration between two readings of a device counter.
    path = files(tmp_path, kernels=kernels(task(1_000, 1_028, duration_ns=1763 / 64)))["msprof.json"]
    lasted = {event["name"]: event["dur"] for event in events(path, "X")}
    assert lasted == {"MatMul": 0.027546875, "Computing": 0.027}
    assert {event["args"]["name"] for event in events(path, "M") if event["name"] == "process_name"} == {
        "Ascend Hardware",
        "Overlap Analysis",
    }


def test_database_of_an_operator_of_which_nothing_is_known(tmp_path):
    frames = {"kernels": kernels(task(0, 10, connection_id=1)), "api_calls": api_calls(api(0, 5, 1))}
    with sqlite3.connect(files(tmp_path, **frames)["msprof.db"]) as found:
        texts = dict(found.execute("SELECT id, value FROM STRING_IDS"))
        [(blocks, attributes, kind)] = found.execute("SELECT blockNum, attrInfo, opType FROM COMPUTE_TASK_INFO")
        names = {name for (name,) in found.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert (blocks, texts[attributes], texts[kind]) == (0, "", "N/A")
    assert {"TASK", "CANN_API", "META_DATA", "RANK_DEVICE_MAP"} <= names
    assert not {"PYTORCH_API", "OVERLAP_ANALYSIS", "ENUM_OVERLAP_ANALYSIS_TYPE"} & names


def test_marks_stand_under_the_name_of_the_process(tmp_path):
    marks = rows("marks", {"pid": 1, "tid": MAIN, "start_ns": 5, "end_ns": 9, "message": "step", "kind": "push/pop"})
    path = files(tmp_path, marks=marks, facts=Facts(process_name="python {3}"))["msprof.json"]
    assert [event["args"]["name"] for event in events(path, "M") if event["name"] == "process_name"] == ["python {3}"]

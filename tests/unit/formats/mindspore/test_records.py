"""MindSpore's records by hand: layouts, names, arrows, clocks (docs/formats/mindspore.md 7, 8)."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.formats.mindspore import cpu_files, data_pipeline, device_memory, is_mindspore, ranges, settings
from stepscope.formats.mindspore.clock import TickClock, read_tick_clock
from stepscope.formats.mindspore.index_names import EVENTS, events_of
from stepscope.formats.mindspore.records import MEMORY_USAGE, OLD_OP_RANGE, OP_RANGE, RECORD_SHAPES, encode
from stepscope.tables import ALL_TABLES

NANOSECONDS = TickClock(1000.0)
TEXTS = {"name": "", "full_name": "", "module_text": "", "event_text": ""}


def read(folder, *rows, version="2.10.0", layout=OP_RANGE, file="mindspore.op_range"):
    (folder / file).write_bytes(encode(layout, rows))
    quality: list[pl.DataFrame] = []
    found = ranges.read(folder, NANOSECONDS, version=version, pid=7, quality=quality)
    return ranges.tables(found).check(), pl.concat([ALL_TABLES["quality"].empty(), *quality])


def record(start, end, **more):
    return {"tid": 5, "start": start, "end": end, **TEXTS, **more}


def test_sizes_of_the_fixed_parts():
    assert [layout.fixed.itemsize for layout in (OP_RANGE, OLD_OP_RANGE, MEMORY_USAGE)] == [54, 74, 100]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"module": 4, "event": 4, "name": "x", "full_name": "Default/Add-op0"}, "Kernel::KernelLaunch::Default/Add-op0"),
        ({"is_stage": True, "stage": 5, "full_name": "x"}, "RunOp"),
        (
            {"is_graph": True, "module_text": "Dataset", "event_text": "MapOp(ID:1)", "name": "WorkerGet"},
            "Dataset::MapOp(ID:1)::WorkerGet",
        ),
        ({"module": 99, "event": 4, "full_name": "y"}, "Default::KernelLaunch::y"),
    ],
)
def test_names(fields, shown, tmp_path):
    tables, _ = read(tmp_path, record(1, 2, **fields))
    assert tables.ops["name"].to_list() == [shown]
    assert tables.ops.select("pid", "tid", "start_ns", "end_ns").row(0) == (7, 5, 1, 2)


def test_kinds_of_python_calls(tmp_path):
    names = ["a/b.py(12):run", "mindspore/nn/cell.py(1):nn.Cell.Dense.__call__", "<built-in method sum>"]
    tables, _ = read(tmp_path, *(record(number, 9, is_stack=True, name=name) for number, name in enumerate(names, 1)))
    assert tables.python_calls["kind"].to_list() == ["python", "module", "c"]
    assert tables.ops.is_empty()


def test_events_of_2_6_have_no_entry_50():
    assert events_of("2.6.0")[50] == EVENTS[51]
    assert events_of("2.7.0") == events_of("2.10.0") == events_of("") == EVENTS


def test_an_arrow_needs_one_start_and_one_end(tmp_path):
    flow = {"name": "flow", "full_name": "flow"}
    rows = [
        record(1, 2, flow=1, **flow), record(5, 9, flow=1, full_name="end"),
        record(1, 2, flow=2, **flow),
        record(1, 2, flow=3, **flow), record(5, 9, flow=3), record(6, 9, flow=3),
    ]  # fmt: skip
    tables, _ = read(tmp_path, *rows)
    assert tables.flows.select("id", "from_ns", "to_ns").rows() == [(1, 1, 5)]
    assert tables.ops.height == 3


def test_arrows_of_an_id_used_again_leave_the_queue_in_order(tmp_path):
    flow = {"name": "flow", "full_name": "flow"}
    rows = [
        record(1, 2, flow=4, **flow), record(3, 4, flow=4, **flow), record(5, 6, flow=4, tid=9), record(7, 8, flow=4, tid=8),
        record(20, 21, flow=5, **flow), record(10, 11, flow=5), record(22, 23, flow=5, **flow), record(24, 25, flow=5),
    ]  # fmt: skip
    tables, _ = read(tmp_path, *rows)
    # The second id ends before it begins: nothing is known about that pair.
    found = [("mindspore_queue", 0, 1, 5), ("mindspore_queue", 1, 3, 7), ("mindspore_queue", 2, 22, 24)]
    assert tables.flows.select("kind", "id", "from_ns", "to_ns").rows() == found


def test_steps_and_what_never_began(tmp_path):
    step = {"module": 5, "event": 53, "name": "ProfilerStep#4", "full_name": "ProfilerStep#4"}
    tables, quality = read(tmp_path, record(1, 100, **step), record(0, 5, full_name="x"))
    assert tables.steps.select("step", "start_ns", "end_ns").rows() == [(4, 1, 100)]
    assert tables.ops["name"].to_list() == ["Python::PythonObserved::ProfilerStep#4"]
    assert quality.select("issue", "count").rows() == [("end-without-start", 1)]


def test_records_up_to_2_5(tmp_path):
    row = {"start": 10, "end": 20, "tid": 3, "name": "Add", "shapes": "2,3|4", "stack": "a|b", "flow": 0}
    tables, quality = read(tmp_path, row, layout=OLD_OP_RANGE, file="op_range_0")
    assert tables.ops.select("name", "start_ns", "end_ns", "shapes", "stack").rows() == [("Add", 10, 20, "2,3;4", "a;b")]
    assert quality.is_empty()


def test_a_torn_tail_is_counted(tmp_path):
    whole = encode(OP_RANGE, [record(1, 2, full_name="a"), record(3, 4, full_name="b")])
    (tmp_path / "mindspore.op_range").write_bytes(whole[:-3])
    quality: list[pl.DataFrame] = []
    found = ranges.read(tmp_path, NANOSECONDS, version="", pid=None, quality=quality)
    assert found.rows.height == 1
    assert pl.concat(quality)["issue"].to_list() == ["truncated-record"]


def test_ticks_are_rounded_to_the_nearest_nanosecond(tmp_path):
    clock = TickClock(2445.0, zero=1000, epoch_ns=5_000)
    # 2445 ticks are 1000 ns; one tick is 0.409 ns, four are 1.636
    assert clock.to_epoch_ns(pl.Series([1000, 3445, 1001, 1004, 999], dtype=pl.UInt64)).to_list() == [5000, 6000, 5000, 5002, 5000]
    info = {"clock": {"freq_mhz": 2.0, "begin": {"syscnt": 4, "unix_ns": 100}}}
    assert read_tick_clock(tmp_path, None, info) == TickClock(2.0, 4, 100)
    assert read_tick_clock(tmp_path, None, {"clock": {"freq_mhz": 0, "begin": {}}}).quality.height == 1


def test_cpu_kernels(tmp_path):
    (tmp_path / "cpu_op_execute_timestamp_0.txt").write_text(
        "Default/MatMul-op1;HostCpuOps;1000,0.0015,0 4000,0.002,1 \nAdd;HostCpuOps;2000,bad,0 3000,1e-06,0 \n"
    )
    (tmp_path / "cpu_framework_0.txt").write_text(
        "MatMul;MatMul-op1;9;input_1:[2, 3];input_2:[3];\n;;9;\nMatMul;MatMul-op1;9;input_1:[2, 3];input_2:NoShape;\n"
    )
    quality: list[pl.DataFrame] = []
    tables = cpu_files.read(tmp_path, ALL_TABLES["ops"].empty(), device=0, pid=1, quality=quality)
    assert tables.kernels.select("name", "op_type", "stream", "start_ns", "end_ns", "input_shapes").rows() == [
        ("Default/MatMul-op1", "MatMul", 0, 1000, 2500, "2,3;3"),
        ("Add", "Add", 0, 3000, 3001, None),
        ("Default/MatMul-op1", "MatMul", 1, 4000, 6000, "2,3;"),
    ]
    assert pl.concat(quality).select("issue", "count").rows() == [("unreadable-line", 1)]


def test_kernels_beside_a_device_are_none_of_its_work(tmp_path):
    (tmp_path / "cpu_op_execute_timestamp_0.txt").write_text("Cast;HostCpuOps;1000,0.001,0 \n")
    kernels = cpu_files.read(tmp_path, ALL_TABLES["ops"].empty(), device=None, pid=1, quality=[]).kernels
    assert kernels.select("device", "kind").rows() == [(None, "other")]


def test_launches_of_a_graph_stand_for_its_kernels(tmp_path):
    tables, _ = read(tmp_path, record(10, 30, module=4, event=4, full_name="Default/Add-op0"), record(5, 50, full_name="other"))
    kernels = cpu_files.read(tmp_path, tables.ops, device=0, pid=7, quality=[]).kernels
    row = kernels.select("name", "op_type", "start_ns", "duration_ns", "launch_ns", "launch_tid").row(0)
    assert row == ("Default/Add-op0", "Add", 10, 20.0, 10, 5)


def test_input_pipelines(tmp_path):
    (tmp_path / "pipeline_profiling_0.json").write_bytes(
        b'{"sampling_interval": 10, "op_info": [{"op_id": 1, "op_type": "MapOp", "num_workers": 2, "metrics": '
        b'{"output_queue": {"length": 16, "size": [0, 4]}}}, {"op_id": 0, "op_type": "BatchOp", "children": [1]}, 3]}'
    )
    (tmp_path / "minddata_cpu_utilization_0.json").write_bytes(
        b'{"op_info": [{"op_id": 1, "metrics": {"sys_utilization": [1, 2], "user_utilization": [3, 4]}}]}'
    )
    (tmp_path / "device_queue_profiling_0.txt").write_text("0 2 1 9 100\n1 16 1 6 100\n0 x 1 9 100\n")
    quality: list[pl.DataFrame] = []
    tables = data_pipeline.read(tmp_path, quality).check()
    rows = tables.data_pipelines.select("op_id", "op_type", "children", "queue_sizes", "cpu_pct").rows()
    assert rows == [(0, "BatchOp", [1], None, None), (1, "MapOp", [], [0, 4], [4.0, 6.0])]
    assert tables.data_batches.select("to_device", "kind", "value", "capacity").rows() == [
        (True, "batch", 9, None),
        (True, "queue", 6, 16),
    ]
    assert pl.concat(quality).select("issue", "count").rows() == [("unreadable-line", 1)]


def test_device_memory_and_shapes(tmp_path):
    block = {"device": 0, "tid": 1, "pid": 2, "address": 64, "used": 100, "alloc": 1024, "owner": "Add"}
    rows = [{**block, "time": 10, "size": 100}, {**block, "time": 20, "size": (1 << 64) - 1, "used": 0}]
    (tmp_path / "mindspore.memory_usage").write_bytes(encode(MEMORY_USAGE, rows, kind=13))
    events = ALL_TABLES["memory_events"].check(device_memory.memory_events(tmp_path, []))
    assert events.select("time_ns", "action", "bytes", "ptr", "op_name").rows() == [
        (10, "malloc", 100, 64, "Add"),
        (20, "free", -100, 64, "Add"),
    ]
    (tmp_path / "mindspore.record_shapes").write_bytes(encode(RECORD_SHAPES, [{"name": "Add", "shapes": "2,3;3"}], kind=3))
    assert device_memory.input_shapes(tmp_path, []).rows() == [("Add", "2,3;3", None)]


def test_whose_records_they_are(tmp_path):
    assert not is_mindspore(tmp_path)
    (tmp_path / "mindspore.op_range").touch()
    assert is_mindspore(tmp_path)
    (tmp_path / "torch.op_range").touch()
    assert not is_mindspore(tmp_path)


def test_settings_in_the_words_of_the_other_framework():
    given = {"activities": ["CPU", "NPU"], "profiler_level": "LevelNone", "aic_metrics": "PipeUtilization", "mstx": True}
    common, further = settings.sections({"profiler_parameters": given, "collector": {"activities": ["CPU"]}})
    assert common["activities"] == ["CPU"]
    assert (further["_profiler_level"], further["_aic_metrics"], further["_mstx"]) == (
        "Level_none",
        "ACL_AICORE_PIPE_UTILIZATION",
        True,
    )
    assert settings.sections({"config": {}}) is None


def test_settings_that_the_machine_could_not_follow_are_off():
    given = {"aic_metrics": "PipeUtilization", "aicore_metrics": "PipeUtilization", "l2_cache": True, "mstx": True}
    _, further = settings.sections(
        {"profiler_parameters": given, "collector": {"without_effect": ["aic_metrics", "l2_cache", "pcie"]}}
    )
    assert (further["_aic_metrics"], further["_l2_cache"], further["_mstx"]) == ("", None, True)


def test_the_rank_of_a_capture():
    assert settings.rank({"ms_profiler_info": {"rank_id": "3"}}) == "3"


def test_the_begin_of_an_arrow_that_lasts_less_than_a_nanosecond_is_not_an_operator(tmp_path):
    """Ticks of 0.4 ns: two that differ may be the same nanosecond."""
    rows = [record(10, 11, name="flow", full_name="flow", flow=3), record(25, 50, module=4, event=4, full_name="Add", flow=3)]
    (tmp_path / "mindspore.op_range").write_bytes(encode(OP_RANGE, rows))
    tables = ranges.tables(ranges.read(tmp_path, TickClock(2500.0), version="2.10.0", pid=7, quality=[]))
    assert tables.ops["name"].to_list() == ["Kernel::KernelLaunch::Add"]
    assert tables.flows.select("from_ns", "to_ns").rows() == [(4, 10)]

"""Views of the page as pure functions of small captures."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import polars as pl
import pytest
from capture_rows import MAIN, WORKER, collective, collectives, kernels, op, ops, rows, steps, tables, task

import stepscope
from stepscope.analysis.link.capture import link
from stepscope.formats.reader import CaptureFiles
from stepscope.formats.registry import READERS
from stepscope.query.engine import Engine
from stepscope.tables import Facts, Tables, issues, lost
from stepscope.web.catalogue import Catalogue, Entry
from stepscope.web.discovery import CaptureLocation
from stepscope.web.html_report import page as report_page
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, Shown, csv_text, page
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem
from stepscope.web.sql import sql
from stepscope.web.view_list import views_of
from stepscope.web.views import diff, distributed, files, findings, flame, memory, modules, operators, overview, verdict
from stepscope.web.views import kernels as kernel_view
from stepscope.web.views import steps as step_view

NAMES = Listing(
    pl.DataFrame({"name": ["b", "a", None, "C"], "n": [2, None, 1, 10], "x": [0.5, float("nan"), 2.0, 1.0]}),
    (Shown("name", "Name"), Shown("n", "Count (KB)", summed=True), Shown("x", "X", shown=False)),
    (("n", True),),
)


def loaded(frames: Tables, **facts) -> LoadedCapture:
    return LoadedCapture(
        link(frames.replace(meta=Facts(**facts).table())), CaptureFiles(Path("capture"), READERS[0].name), Path("."), "v"
    )


def names(query, listing=NAMES):
    return [row[0] for row in page(listing, Query(**query))["rows"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, ["b", "a", None, "C"], id="as-it-stands"),
        pytest.param({"sort": "n"}, [None, "b", "C", "a"], id="numbers-nulls-last"),
        pytest.param({"sort": "n", "desc": "1"}, ["C", "b", None, "a"], id="descending-nulls-last"),
        pytest.param({"sort": "name,n", "desc": "1,0"}, ["b", "a", "C", None], id="two-columns"),
        pytest.param({"offset": 1, "limit": 2}, ["a", None], id="part"),
        pytest.param({"limit": 0}, [], id="none"),
        pytest.param({"q": "c"}, ["C"], id="substring-any-case"),
        pytest.param({"q": "/^[ab]$/"}, ["b", "a"], id="regular-expression"),
        pytest.param({"q": "["}, [], id="brackets-are-text"),
        pytest.param({"filter": '{"n": {"min": 2}}'}, ["b", "C"], id="from"),
        pytest.param({"filter": '{"n": {"min": 1, "max": 2}}'}, ["b", None], id="between"),
        pytest.param({"filter": '{"name": {"in": ["a", null]}}'}, ["a", None], id="set-with-null"),
        pytest.param({"filter": '{"n": {"in": [10]}}'}, ["C"], id="set-of-numbers"),
        pytest.param({"filter": '{"name": {"text": "b"}, "n": {"max": 1}}'}, [], id="all-must-pass"),
    ],
)
def test_pages(query, expected):
    assert names(query) == expected


def test_page_says_what_it_holds():
    answer = page(NAMES, Query(q="c"))
    assert (answer["total"], answer["filtered"], answer["totals"], answer["sort"]) == (4, 1, {"n": 10}, [["n", True]])
    assert answer["columns"][1] == {"key": "n", "name": "Count (KB)", "unit": "KB", "type": "int", "tooltip": "", "shown": True}
    assert page(NAMES, Query())["rows"][1] == ["a", None, None]  # NaN is not a number


def test_csv_has_all_rows_and_no_formulas():
    risky = NAMES.replace(frame=pl.DataFrame({"name": ["=1", "+x", "-y", "@z", "a,b"], "n": [-1, 2, 3, 4, 5], "x": [-0.5] * 5}))
    assert csv_text(risky, Query(limit=1, sort="n", desc=1)).splitlines() == [
        "Name,Count (KB),X", '"a,b",5,-0.5', "'@z,4,-0.5", "'-y,3,-0.5", "'+x,2,-0.5", "'=1,-1,-0.5",
    ]  # fmt: skip


TRAINING = tables(
    ops=ops(
        op("ProfilerStep#1", 0, 100_000),
        op("aten::matmul", 1000, 21_000, shapes="2,3;3,4", stack="a.py(1): f"),
        op("aten::mm", 2000, 12_000, shapes="2,3;3,4", stack="a.py(1): f"),
        op("aten::matmul", 13_000, 15_000, shapes="", stack="b.py(2): g"),  # inside a call of the same name
        op("MmBackward", 30_000, 40_000, WORKER),
    ),
    kernels=kernels(
        task(50_000, 60_000, name="sgemm_16816", launch_ns=3000, launch_tid=MAIN, core="AI_CORE", task_type="AI_CORE", block_num=4),
        task(
            62_000,
            66_000,
            name="copy",
            launch_ns=14_000,
            launch_tid=MAIN,
            core="AI_VECTOR_CORE",
            task_type="AI_VECTOR_CORE",
            block_num=2,
        ),
        task(
            70_000,
            76_000,
            name="sgemm_16816",
            launch_ns=35_000,
            launch_tid=WORKER,
            core="AI_CORE",
            task_type="AI_CORE",
            block_num=8,
        ),
    ),
    steps=steps((1, 0, 100_000)),
)


@pytest.fixture(scope="module")
def npu():
    return loaded(TRAINING, device_kind="npu", device_ids=(0,), level="Level1", rank=0)


@pytest.fixture(scope="module")
def gpu():
    return loaded(TRAINING, device_kind="cuda")


def test_kernels_of_a_cpu_are_no_gpu():
    cpu = loaded(TRAINING, device_kind="cpu")
    assert "CPU Kernel" in views_of(cpu)
    assert not {"GPU Kernel", "NPU Kernel"} & set(views_of(cpu))
    assert overview.overview(cpu)["gpu_summary"] == []
    assert [pie["key"] for pie in kernel_view.pies(cpu, Query())["pies"]] == ["total_time"]
    titles = [column["name"] for column in page(kernel_view.kernels(cpu, Query()), Query())["columns"]]
    assert titles == ["Name", "Calls", "Total Duration (us)", "Mean Duration (us)", "Max Duration (us)", "Min Duration (us)"]


def listed(capture: LoadedCapture) -> tuple[bool, list[str]]:
    """What the list of captures says about simulation."""
    ready: Future[LoadedCapture] = Future()
    ready.set_result(capture)
    catalogue = Catalogue([Path(".")])
    try:
        shown = catalogue.describe(Entry(CaptureLocation("run", "w0", "1", capture.files, Path(".")), "v", future=ready))
    finally:
        catalogue.close()
    return shown["simulated"], shown["modelled"]


def test_simulated_devices_say_so(npu):
    made = loaded(TRAINING, device_kind="npu", modelled=("counters", "transfers"))
    unnamed = loaded(TRAINING, device_kind="npu", profiler_info={"collector": {"device": "npu_sim"}})
    assert made.simulated
    assert unnamed.simulated
    assert not npu.simulated
    # The page says it itself, in its language, of what the list of captures knows; the report says it once for a run.
    assert overview.overview(made)["notes"] == []
    assert [listed(one) for one in (made, unnamed, npu)] == [(True, ["counters", "transfers"]), (True, []), (False, [])]
    for captures, said in (
        ([made], "modelled, not measured, are counters, transfers<"),
        ([npu, unnamed], "modelled, not measured, are counters of cores and caches<"),
        ([npu], None),
    ):
        report = report_page.html([report_page.Run("run", {f"w{place}": one for place, one in enumerate(captures)}, [])])
        assert (report.count("modelled, not measured"), said is None or said in report) == (said is not None, True)


def dicts(listing, **query):
    answer = page(listing, Query(**query))
    return [dict(zip([column["key"] for column in answer["columns"]], row, strict=True)) for row in answer["rows"]]


def test_operator_table(npu):
    first, second, third = dicts(operators.operators(npu, Query()))
    assert (first["name"], first["device_self"], first["core_self"], first["eligible"]) == ("aten::mm", 10.0, 100.0, "Yes")
    assert (second["name"], second["device_self"]) == ("MmBackward", 6.0)
    # Two calls, one inside the other: the total counts the outer one, the self times both.
    assert (third["name"], third["calls"], third["device_self"], third["device_total"]) == ("aten::matmul", 2, 4.0, 14.0)
    assert (third["host_total"], third["host_self"]) == (20.0, 10.0)
    assert third["core_total"] == pytest.approx(100 * 10 / 14)


def test_operator_headings(npu, gpu):
    cpu = loaded(tables(ops=ops(op("a", 0, 10))), device_kind="cpu")
    headings = {
        name: [column.name for column in operators.operators(one, Query(group="op_shape")).columns]
        for name, one in (("npu", npu), ("gpu", gpu), ("cpu", cpu))
    }
    assert headings["npu"][:11] == [
        "Name", "Input Shapes", "Calls", "Device Self Duration (us)", "Device Total Duration (us)", "Host Self Duration (us)",
        "Host Total Duration (us)", "AI Cores Eligible", "AI Cores Self (%)", "AI Cores Total (%)", "CallStack",
    ]  # fmt: skip
    assert headings["gpu"][7:10] == ["Tensor Cores Eligible", "Tensor Cores Self (%)", "Tensor Cores Total (%)"]
    assert headings["cpu"][2:6] == ["Calls", "Host Self Duration (us)", "Host Total Duration (us)", "CallStack"]


def test_operators_by_shape_and_their_stacks(npu):
    shown = {(row["name"], row["shapes"]): row["calls"] for row in dicts(operators.operators(npu, Query(group="op_shape")))}
    assert shown == {
        ("aten::matmul", "[[2,3],[3,4]]"): 1,
        ("aten::matmul", ""): 1,
        ("aten::mm", "[[2,3],[3,4]]"): 1,
        ("MmBackward", ""): 1,
    }
    both = operators.stacks(npu, Query(name="aten::matmul"))
    assert sorted(row["frames"][0]["function"] for row in both["rows"]) == ["f", "g"]
    one = operators.stacks(npu, Query(name="aten::matmul", shapes="[[2,3],[3,4]]"))
    assert [row["frames"][0]["file"] for row in one["rows"]] == ["a.py"]
    with pytest.raises(Problem):
        operators.stacks(npu, Query(name="nothing"))


def test_pies_leave_zero_out_and_sum_the_rest(npu):
    found = {pie["key"]: pie for pie in operators.pies(npu, Query(top=1))["pies"]}
    assert list(found) == ["device_self", "device_total", "host_self", "host_total"]
    assert ([item["name"] for item in found["device_self"]["items"]], found["device_self"]["other"]) == (["aten::mm"], 10.0)


def test_tensor_cores_on_gpu(gpu):
    shown = {row["name"]: (row["eligible"], row["core_self"]) for row in dicts(operators.operators(gpu, Query()))}
    assert shown == {"aten::mm": ("Yes", 100.0), "aten::matmul": ("Yes", 0.0), "MmBackward": ("Yes", 100.0)}


def test_kernel_statistic_from_tables(npu):
    first, second = dicts(kernel_view.kernels(npu, Query()))
    assert (first["name"], first["calls"], first["total"], first["max"], first["avg"], first["min"]) == (
        "sgemm_16816",
        2,
        16.0,
        10.0,
        8.0,
        6.0,
    )
    assert (first["core"], first["block"], first["share"]) == ("AI_CORE", "4, 8", 80.0)
    assert second["name"] == "copy"
    assert [row["name"] for row in dicts(kernel_view.kernels(npu, Query(core="AI_VECTOR_CORE")))] == ["copy"]
    pies = kernel_view.pies(npu, Query())
    assert [item["name"] for item in pies["pies"][1]["items"]] == ["Using AI CORE", "Using AI VECTOR CORE"]
    calls = kernel_view.calls(npu, Query(name="sgemm_16816"))
    assert [(row["start_ns"], row["duration_us"], row["op"]) for row in calls["rows"]] == [
        (50_000, 10.0, "aten::mm"),
        (70_000, 6.0, "MmBackward"),
    ]
    assert sum(calls["histogram"]["counts"]) == 2


def test_gpu_kernels_by_name_and_properties(gpu):
    (first, _) = dicts(kernel_view.kernels(gpu, Query()))
    assert (first["name"], first["tensor"], first["calls"], first["mean"]) == ("sgemm_16816", "Yes", 2, 8.0)
    shown = {(row["name"], row["operator"]): row["eligible"] for row in dicts(kernel_view.kernels(gpu, Query(group="properties")))}
    assert shown == {("sgemm_16816", "aten::mm"): "Yes", ("sgemm_16816", "MmBackward"): "No", ("copy", "aten::matmul"): "Yes"}


def test_an_instant_counts_for_the_first_category():
    made = loaded(
        tables(
            ops=ops(op("ProfilerStep#1", 0, 100), op("enumerate(DataLoader)#x", 0, 30), op("aten::add", 20, 60)),
            kernels=kernels(
                task(40, 50), task(45, 55, kind="memcpy"), task(55, 58, kind="communication"), task(90, 120, kind="memset")
            ),
            api_calls=rows(
                "api_calls", {"pid": 7, "tid": MAIN, "start_ns": 50, "end_ns": 65, "level": "cuda_runtime", "name": "x"}
            ),
            steps=steps((1, 0, 100)),
        ),
        device_kind="cuda",
    )
    (row,) = step_view.other_steps(made).iter_rows(named=True)
    expected = {
        "Kernel": 10,
        "Memcpy": 5,
        "Memset": 10,
        "Communication": 3,
        "Runtime": 7,
        "DataLoader": 30,
        "CPU Exec": 10,
        "Other": 25,
    }
    assert {name: round(row[name] * 1000) for name in expected} == expected
    assert sum(expected.values()) == 100 == round(row["total"] * 1000)


def test_overview_of_both_kinds(npu, gpu):
    answer = overview.overview(npu, workers=2)
    assert {"name": "Number of Worker(s)", "value": 2} in answer["configuration"]
    assert [row[0] for row in answer["execution"]["rows"]][:2] == ["Computing", "Communication(Not Overlapped)"]
    other = overview.overview(gpu)
    assert other["execution"]["rows"][0] == ["Average Step Time", 100.0, 100.0]
    assert sum(row[1] for row in other["execution"]["rows"][1:]) == pytest.approx(100.0)
    assert other["gpu_summary"][1]["value"] == pytest.approx(20.0)


def test_a_step_is_as_long_as_the_device_needs_where_the_host_runs_ahead():
    """The host is through after 10 us, the device is busy for 80: no part is more than the step."""
    made = loaded(
        tables(
            ops=ops(op("ProfilerStep#1", 0, 10_000), op("ProfilerStep#2", 10_000, 110_000)),
            kernels=kernels(
                task(5_000, 85_000, launch_ns=1_000, launch_tid=MAIN), task(90_000, 100_000, launch_ns=20_000, launch_tid=MAIN)
            ),
            steps=steps((1, 0, 10_000), (2, 10_000, 110_000)),
        ),
        device_kind="npu",
        device_ids=(0,),
    )
    rows = step_view.npu_bars(made).sort("step")
    assert rows["total"].to_list() == [80.0, 100.0]
    assert rows.select(pl.sum_horizontal(*step_view.NPU_BAR)).to_series().to_list() == pytest.approx([80.0, 100.0])
    shown = overview.overview(made)
    assert shown["average_step_us"] == 90.0
    assert all(percent <= 100 for _, _, percent in shown["execution"]["rows"])


def test_the_mean_step_is_that_of_the_verdict():
    """Marks of 100 us each; the device begins later in every step, and the profiler slows the first and the last one down."""
    lag = {1: 10_000, 2: 20_000, 3: 30_000, 4: 40_000}
    made = loaded(
        tables(
            ops=ops(*(op(f"ProfilerStep#{step}", 100_000 * step, 100_000 * (step + 1)) for step in lag)),
            kernels=kernels(
                *(
                    task(100_000 * step + late, 100_000 * step + late + 50_000, launch_ns=100_000 * step + 1_000, launch_tid=MAIN)
                    for step, late in lag.items()
                )
            ),
            steps=steps(*((step, 100_000 * step, 100_000 * (step + 1)) for step in lag)),
        ),
        device_kind="cuda",
    )
    shown = overview.overview(made)
    assert shown["average_step_us"] == 100.0
    assert shown["step"] == {"us": 105.0, "count": 2, "marked": True, "differs": True}
    assert shown["step"]["us"] == pytest.approx(1000 * verdict.verdict_page({"0": made}, [])["step_ms"])


def test_tasks_outside_of_all_steps_are_not_called_a_capture_without_steps():
    made = loaded(tables(kernels=kernels(task(0, 50)), steps=steps((1, 100, 200))), device_kind="npu", device_ids=(0,))
    (note,) = overview.overview(made)["notes"]
    assert note.startswith("none of the recorded tasks belongs to a marked step")


def allocation(name, start, end, size, **more):
    return {
        "pid": 7,
        "tid": MAIN,
        "name": name,
        "device_type": "npu",
        "device": 0,
        "component": "PTA",
        "bytes": size,
        "start_ns": start,
        "release_ns": end,
        **more,
    }


def test_memory_of_blocks():
    made = loaded(
        tables(
            ops=ops(op("a", 0, 2_000_000)),
            allocations=rows(
                "allocations",
                allocation("a", 1_000_000, 3_000_000, 2048),
                allocation("b", 2_000_000, None, 1024),
                allocation("c", 500_000, 600_000, 512, component="GE"),
            ),
        ),
        device_kind="npu",
    )
    shown = dicts(memory.events(made, Query()))
    assert [(row["name"], row["size"], row["allocation"], row["release"], row["duration"]) for row in shown] == [
        ("cann::c", 0.5, 0.5, 0.6, pytest.approx(0.1)),
        ("a", 2.0, 1.0, 3.0, 2.0),
        ("b", 1.0, 2.0, None, None),
    ]
    assert [row["name"] for row in dicts(memory.events(made, Query(held=1)))] == ["b"]
    assert [row["name"] for row in dicts(memory.events(made, Query(**{"from": 1_500_000, "to": 2_500_000})))] == ["b"]
    held = memory.alive(made, Query(at=2_500_000))
    assert (held["count"], held["bytes"], [row["name"] for row in held["rows"]]) == (2, 3072, ["a", "b"])
    with pytest.raises(Problem):
        memory.events(made, Query(device="NPU:7"))


def test_single_blocks_of_the_peak_are_named_by_their_size():
    mib = 1 << 20
    made = loaded(
        tables(
            ops=ops(op("a", 0, 2_000_000)),
            allocations=rows("allocations", *(allocation("a", 1_000_000, 3_000_000, size * mib) for size in (1024, 2, 2))),
        ),
        device_kind="npu",
    )
    drawn = memory.peak(made, Query())["tree"]
    assert [drawn["names"][name] for name in drawn["name"]][-4:] == ["a", "1,024.0 MiB", "2.0 MiB", "2.0 MiB"]
    assert drawn["weight"][-4:] == [1028 * mib, 1024 * mib, 2 * mib, 2 * mib]
    assert len(set(drawn["names"])) == len(drawn["names"])


def test_thinned_curves_keep_first_extremes_and_last():
    time = np.arange(1000, dtype=np.int64)
    value = np.sin(time / 3.0)
    kept = memory.thinned(time, value, 100, 900, 4)
    assert kept[0] == 99  # in force at the left edge
    for pixel in range(4):
        inside = np.arange(100 + 200 * pixel, 300 + 200 * pixel)
        wanted = {inside[0], inside[-1], inside[value[inside].argmin()], inside[value[inside].argmax()]}
        assert wanted == set(kept[(kept >= inside[0]) & (kept <= inside[-1])])
    assert memory.thinned(time, value, 0, 1000, 1000).tolist() == time.tolist()


def test_memory_statistics_of_operators():
    def event(time, size):
        return {
            "pid": 7,
            "tid": MAIN,
            "time_ns": time,
            "component": "PTA",
            "device_type": "cpu",
            "bytes": size,
            "ptr": 1,
            "inner": True,
            "action": "malloc",
        }

    made = loaded(
        tables(
            ops=ops(op("outer", 0, 100), op("inner", 10, 20)),
            memory_events=rows("memory_events", event(5, 1024), event(12, 2048), event(50, -1024)),
        ),
        device_kind="cpu",
    )
    shown = {row["name"]: row for row in dicts(memory.statistics(made, Query()))}
    assert {key: shown["outer"][key] for key in ("increase", "self_increase", "count", "self_count", "size", "self_size")} == {
        "increase": 2.0, "self_increase": 0.0, "count": 2, "self_count": 1, "size": 3.0, "self_size": 1.0
    }  # fmt: skip
    assert (shown["inner"]["self_increase"], shown["inner"]["calls"]) == (2.0, 1)


def test_diff_keeps_rows_of_one_side_and_drills_down(npu):
    other = loaded(
        tables(
            ops=ops(op("ProfilerStep#9", 0, 100_000), op("aten::matmul", 1000, 31_000), op("aten::new", 50_000, 52_000, WORKER))
        ),
        device_kind="npu",
    )
    answer = diff.diff(npu, other, Query(level="operator", metric="host_total"))
    shown = {row[0]: row[1:] for row in answer["table"]["rows"]}
    assert shown["aten::matmul"][:8] == [2, 1, -1, -50.0, 20.0, 30.0, 10.0, 50.0]
    assert (shown["aten::new"][-1], shown["aten::mm"][-1], shown["aten::matmul"][-1]) == ("experiment", "baseline", None)
    assert [(row["name"], row["baseline"], row["experiment"], row["children"]) for row in answer["phases"]] == [
        ("aten::matmul", 20.0, 30.0, True),
        ("MmBackward", 10.0, 0.0, False),
        ("aten::new", 0.0, 2.0, False),
    ]
    assert answer["phases"][-1]["diff_sum"] == 2.0
    inside = diff.diff(npu, other, Query(level="operator", path='["aten::matmul"]'))["phases"]
    assert [row["name"] for row in inside] == ["aten::mm", "aten::matmul"]
    with pytest.raises(Problem):
        diff.diff(npu, other, Query(level="operator", path='["nothing"]'))


@pytest.mark.parametrize("level", ["kernel", "op", "module", "part"])
def test_diff_shows_what_the_command_says(npu, level):
    other = loaded(npu.tables.replace(kernels=npu.tables.kernels.head(1)), device_kind="npu")
    answer = diff.diff(npu, other, Query(level=level, limit=2000))
    found = stepscope.diff(npu.tables, other.tables, by=level)
    keys = [column["key"] for column in answer["table"]["columns"]]
    shown = [dict(zip(keys, row, strict=True)) for row in answer["table"]["rows"]]
    assert [row["delta_ms"] for row in shown] == [float(row.delta_ns) / 1e6 for row in found.rows]
    assert sum(row["delta_ms"] for row in shown) == pytest.approx(answer["delta_ms"])
    assert answer["answer"] == found.as_dict()["answer"]
    assert answer["phases"][-1]["diff_sum"] == pytest.approx(answer["delta_ms"] * 1000)


def test_flame_of_operators_and_stacks(npu):
    by_op = flame.flame(npu, Query(source="op", weight="device"))
    assert by_op["total"] == 20.0
    rows = list(
        zip(
            by_op["nodes"]["parent"],
            (by_op["names"][name] for name in by_op["nodes"]["name"]),
            by_op["nodes"]["weight"],
            strict=True,
        )
    )
    assert rows == [
        (-1, "all", 20.0),
        (0, "aten::matmul", 14.0),
        (0, "MmBackward", 6.0),
        (1, "aten::mm", 10.0),
        (1, "aten::matmul", 4.0),
    ]
    assert sorted(flame.collapsed(npu, Query(weight="device")).splitlines()) == ["a.py(1): f 10", "b.py(2): g 4"]
    only = flame.flame(npu, Query(source="op", weight="device", root="aten::mm"))
    assert (only["total"], only["names"]) == (10.0, ["all", "aten::mm"])


def test_communication_counts_sdma_and_rdma_only():
    def packets(transport, size):
        return {
            "collective": 0,
            "name": "hcom_allReduce__271_0_1",
            "group": "g",
            "transport": transport,
            "transit_mb": size,
            "transit_ms": 1.0,
        }

    made = loaded(
        tables(
            collectives=collectives(
                collective(0, 2_000_000, group="g"), collective(3_000_000, 4_000_000, group="g", name="hcom_allReduce__271_1_1")
            ),
            collective_times=rows(
                "collective_times",
                {
                    "collective": 0,
                    "name": "hcom_allReduce__271_0_1",
                    "group": "g",
                    "elapse_ms": 2.0,
                    "transit_ms": 0.5,
                    "wait_ms": 1.0,
                    "sync_ms": 0.75,
                    "idle_ms": 0.5,
                },
                {
                    "collective": 1,
                    "name": "hcom_allReduce__271_1_1",
                    "group": "g",
                    "elapse_ms": 1.0,
                    "transit_ms": 0.5,
                    "wait_ms": 0.0,
                    "sync_ms": 0.0,
                    "idle_ms": 0.5,
                },
            ),
            collective_packets=rows(
                "collective_packets", packets("SDMA", 2.0), packets("HCCS", 2.0), packets("RDMA", 0.5), packets("SDMA", 2.0)
            ),
        ),
        device_kind="npu",
    )
    (row,) = dicts(distributed.operations(made, Query()))
    assert (row["name"], row["calls"], row["size"], row["elapse"], row["avg_transit"]) == (
        "hcom_allReduce_",
        2,
        2_500_000.0,
        3000.0,
        500.0,
    )
    answer = distributed.overview({"0": made}, [], Query())
    assert answer["synchronizing"]["rows"] == [[1000.0, 750.0, 250.0, 1000.0]]
    assert sum(answer["synchronizing"]["rows"][0]) == 3000.0


def test_gpu_workers_share_the_shortest_time():
    def worker(*spans):
        return loaded(
            tables(collectives=collectives(*[collective(start, end, op_type="allreduce", kernel=0) for start, end in spans])),
            device_kind="cuda",
        )

    answer = distributed.overview(
        {"0": worker((0, 10_000), (20_000, 24_000)), "1": worker((0, 4000), (20_000, 26_000))}, [], Query()
    )
    assert answer["synchronizing"]["rows"] == [[8.0, 6.0, 0.0, 0.0], [8.0, 2.0, 0.0, 0.0]]


def test_modules_have_parents_and_operators():
    def call(name, start, end):
        return {"pid": 7, "tid": MAIN, "start_ns": start, "end_ns": end, "name": f"nn.Module: {name}", "kind": "module"}

    made = loaded(
        tables(
            python_calls=rows("python_calls", call("Net", 0, 100_000), call("Linear", 10_000, 30_000)),
            ops=ops(op("a", 12_000, 20_000, stack="in;out"), op("b", 50_000, 51_000, stack="out")),
            steps=steps((1, 0, 40_000), (2, 40_001, 200_000)),
        )
    )

    def shown(**query):
        answer = modules.modules(made, Query(**query))
        assert answer["steps"] == [1, 2]
        return [(row["id"], row["parent"], row["depth"], row["cells"]) for row in answer["rows"]]

    assert shown() == [
        (0, None, 0, ["Net", 1, 2, 100.0, 80.0, 0.0, 0.0]),
        (1, 0, 1, ["Linear", 1, 1, 20.0, 20.0, 0.0, 0.0]),
    ]
    # What starts in a step belongs to it: the call of Net to the first, one operator of it to the second.
    assert [cells[:4] for *_, cells in shown(step=1)] == [["Net", 1, 1, 100.0], ["Linear", 1, 1, 20.0]]
    assert shown(step=2) == [(0, None, 0, ["Net", 0, 1, 0.0, 0.0, 0.0, 0.0])]
    with pytest.raises(Problem, match="step"):
        shown(step=3)

    def bars(**query):
        answer = flame.flame(made, Query(**query))
        nodes = zip(answer["nodes"]["name"], answer["nodes"]["weight"], strict=True)
        return {answer["names"][name]: weight for name, weight in nodes}

    assert bars(source="stack") == {"all": 9.0, "out": 9.0, "in": 8.0}
    assert bars(source="stack", step=2) == {"all": 1.0, "out": 1.0}
    assert bars(source="op", step=1) == bars(source="op", to=45_000) == {"all": 8.0, "a": 8.0}


def test_findings_name_what_they_could_not_ask(npu):
    found = findings.findings(npu)
    assert found["answer"]["en"].startswith("Step ")
    assert {lack["because"] for lack in found["not_applicable"]} >= {"no communication in this capture"}
    assert sum(ms for part, ms in found["partition"].items() if part != "total") == pytest.approx(found["partition"]["total"])
    costs = [hit["gain_us"] for hit in found["findings"] if hit["severity"] == "high"]
    assert costs == sorted(costs, reverse=True)


def test_what_is_kept_is_computed_once_and_holds_up_nothing_else():
    made = loaded(tables())
    count: list[int] = []
    begun, go = Event(), Event()

    def slow():
        count.append(1)
        begun.set()
        assert go.wait(30)
        return 5

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(made.once, "slow", slow) for _ in range(2)]
        assert begun.wait(30)
        assert made.once("other", lambda: 7) == 7  # while the slow one is still busy
        go.set()
        assert [one.result() for one in both] == [5, 5]
    assert count == [1]


def test_files_describe_tables(npu):
    answer = files.files(npu)
    (table,) = [table for table in answer["tables"] if table["name"] == "steps"]
    assert (table["rows"], table["columns"][0]["name"]) == (1, "step")
    assert answer["facts"]["level"] == "Level1"


def test_the_page_uses_the_words_of_the_register():
    rows = (lost(issues.UNKNOWN_FILE, "/x/odd.data", 1_000_000), lost(issues.ALLOCATED_BEFORE_RECORDING, "memory_events", 58))
    killed = lost(issues.RECORDING_UNFINISHED, "profiler_info.json", 1)
    damaged = loaded(TRAINING.with_quality(*rows, killed), device_kind="npu")
    told = files.files(damaged)["quality"]
    assert told["summary"] == {"en": "1,000,000 bytes lost; 1 warning, 1 note", "zh": "丢失 1,000,000 字节；1 条警告；1 条说明"}
    assert [(one["issue"], one["sentence"]["en"]) for one in told["issues"]] == [
        ("unknown-file", "1,000,000 bytes in 1 file not understood"),
        ("recording-unfinished", "the recording did not end: the process was killed, or is still recording"),
        ("allocated-before-recording", "58 blocks were allocated before recording began (normal)"),
    ]
    assert overview.overview(damaged)["headline"]["en"].startswith("the recording did not end")
    said = {lack["rule"]: lack["because"] for lack in findings.findings(damaged)["not_applicable"]}
    assert said["lost-records"] == f"data was lost: {told['issues'][0]['sentence']['en']}"
    only_notes = loaded(TRAINING.with_quality(rows[1]), device_kind="npu")
    assert "lost-records" not in {lack["rule"] for lack in findings.findings(only_notes)["not_applicable"]}


def test_views_appear_with_their_data(npu, gpu):
    assert views_of(npu) == ["Verdict", "Overview", "Operator", "NPU Kernel", "Trace", "Flame", "Source", "Findings", "Files"]
    assert views_of(gpu)[3] == "GPU Kernel"
    assert views_of(loaded(tables(), device_kind="cpu")) == ["Files"]


@pytest.mark.slow  # a process of its own answers
def test_sql_over_the_tables(npu):
    """No store of this capture is on disk: its tables are asked all the same."""
    engine = Engine()
    answer = sql(engine, npu, {"query": "select name, count(*) as n from ops group by name order by n desc, name", "limit": 2})
    assert (answer["columns"], answer["rows"], answer["truncated"]) == (
        ["name", "n"],
        [["aten::matmul", 2], ["MmBackward", 1]],
        True,
    )
    joined = "select k.name from kernels k join ops o on k.op_id = o.id where o.name = 'aten::mm'"
    assert sql(engine, npu, {"query": joined})["rows"] == [["sgemm_16816"]]
    engine.close()


def test_rows_of_equal_time_keep_their_places():
    """Pages are cut from the same order at every request, else rows are shown twice or never."""
    equal = [op("aten::add", 10 * at, 10 * at + 5, shapes=f"{at % 97},3") for at in range(2000)]
    orders = []
    for _ in range(3):
        listing = operators.operators(loaded(tables(ops=ops(*equal)), device_kind="cpu"), Query(group="op_shape"))
        orders.append([row[1] for row in page(listing, Query(limit=2000))["rows"]])
    assert orders[0] == orders[1] == orders[2]
    assert orders[0][-1] == "[[96,3]]"  # one call less than most, then by shape
    assert orders[0][1:60] == sorted(orders[0][1:60])


def test_captures_without_kernels_can_be_compared():
    """`GET diff` with level=kernel answered 500 for an NPU capture that has collectives only, or nothing."""
    empty = loaded(tables(ops=ops(op("a", 0, 10))), device_kind="npu")
    answer = diff.diff(empty, empty, Query(level="kernel"))
    assert answer["delta_ms"] == 0
    assert len(answer["table"]["rows"]) == 1

"""Captures of real operators, by both tiers (docs/formats/profiler-api.md 26)."""

from __future__ import annotations

import csv
import gc
import gzip
import itertools
import json
import re
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

import stepscope
from stepscope import mstx, profiler
from stepscope.collect import messages
from stepscope.profiler import _ExperimentalConfig, _KinetoProfile, profile, schedule, tensorboard_trace_handler
from stepscope.top import top

torch = pytest.importorskip("torch", reason="collecting needs torch")
from stepscope.collect.tiers.observer import load_observer  # noqa: E402 - after the skip

pytestmark = pytest.mark.slow  # analysis runs in another process, which takes a second to start

NATIVE = load_observer()
TIERS = ["kineto", pytest.param("native", marks=pytest.mark.skipif(isinstance(NATIVE, str), reason=str(NATIVE)))]


@pytest.fixture(params=TIERS)
def tier(request, monkeypatch, tmp_path):
    monkeypatch.setenv("STEPSCOPE_COLLECTOR", request.param)
    monkeypatch.setenv("STEPSCOPE_MIN_FREE_BYTES", "0")
    monkeypatch.setattr(messages, "_printed", set())
    monkeypatch.chdir(tmp_path)
    return request.param


def model():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(net.parameters())

    def step():
        optimizer.zero_grad()
        net(torch.rand(4, 8)).sum().backward()
        optimizer.step()

    step()
    return step


def the_capture(folder):
    (found,) = Path(folder).glob("*_ascend_pt")
    return found


def names(ops):
    return ops["name"].cast(pl.String).to_list()


def test_steps_and_files(tier, tmp_path, capsys):
    step = model()
    with profile(
        schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=tensorboard_trace_handler("result", "w"),
        record_shapes=True,
        profile_memory=True,
    ) as prof:
        prof.add_metadata("who", "me")
        for _ in range(6):
            step()
            prof.step()
    folder = the_capture("result")
    output = folder / "ASCEND_PROFILER_OUTPUT"
    assert {path.name for path in output.iterdir()} >= {
        "analyse.done", "trace_view.json", "operator_details.csv", "operator_memory.csv", "memory_record.csv",
        "ascend_pytorch_profiler.db",
    }  # fmt: skip
    assert list((folder / "logs").iterdir())
    capture = stepscope.open(folder)
    assert capture.quality.height == 0
    assert capture.steps["step"].to_list() == [2, 3, 4]
    assert capture.steps["inflated"].to_list() == [True, False, True]
    assert names(capture.ops).count("aten::addmm") == 6
    linear = capture.ops.filter(pl.col("name") == "aten::addmm")
    assert linear["shapes"].cast(pl.String)[0] == "16;4,8;8,16;;"
    assert capture.memory_events.height
    assert capture.facts.metadata["who"] == "me"
    assert capture.facts.profiler_info["collector"]["tier"] == tier
    events = json.loads((output / "trace_view.json").read_text())
    assert sum(event.get("name") == "aten::addmm" for event in events) == 6
    with (output / "operator_details.csv").open() as file:
        assert any(row["Name"] == "aten::addmm" for row in csv.DictReader(file))
    out = capsys.readouterr().err
    assert "sync mode" in out
    assert "the job waited for it; next: stepscope top " in out
    assert "WARNING" not in out


def test_forward_and_backward_share_sequence_numbers(tier):
    step = model()
    with profile(on_trace_ready=lambda prof: None, record_shapes=True):
        step()
    ops = stepscope.open(the_capture(".")).ops
    forward = ops.filter(pl.col("name") == "aten::addmm")["seq"].to_list()
    backward = ops.filter(pl.col("name") == "AddmmBackward0", pl.col("scope") == 1)["seq"].to_list()
    assert len(backward) == 2
    assert set(backward) == set(forward)


def test_asynchronous_analysis_returns_before_it_ends(tier, capsys):
    step = model()
    with profile(on_trace_ready=tensorboard_trace_handler("result", async_mode=True)):
        step()
    assert not (the_capture("result") / "ASCEND_PROFILER_OUTPUT").exists()
    for thread in threading.enumerate():
        if thread.name == "stepscope-analysis":
            thread.join()
    assert (the_capture("result") / "ASCEND_PROFILER_OUTPUT" / "analyse.done").exists()
    said = capsys.readouterr().err
    assert "async mode" in said
    assert "wait" not in said


def test_exports(tier, tmp_path, capsys):
    step = model()
    prof = profile(record_shapes=True, profile_memory=True, with_stack=True, with_modules=True)
    prof.export_chrome_trace("early.json")
    assert capsys.readouterr().err.count("WARNING") == 1
    with prof:
        step()
    capsys.readouterr()
    prof.export_chrome_trace("new/trace.json")
    prof.export_chrome_trace(output_path="new/trace.json")
    first = json.loads(Path("new/trace.json").read_text())
    assert any(event.get("name") == "aten::addmm" for event in first)
    assert capsys.readouterr().err == ""
    prof.export_stacks("stacks.txt", metric="heat")
    assert capsys.readouterr().err.count("WARNING") == 2
    lines = Path("stacks.log").read_text().splitlines()
    assert all(line.rpartition(" ")[2].isdigit() for line in lines)
    assert any(Path(__file__).name in line for line in lines)
    prof.export_memory_timeline("memory.json", device="cpu")
    times, sums = json.loads(Path("memory.json").read_text())
    assert len(times) == len(sums)
    assert len(sums[0]) == 9
    prof.export_memory_timeline(output_path="memory_raw.json.gz")
    assert len(json.loads(gzip.decompress(Path("memory_raw.json.gz").read_bytes()))[0]) == 4
    assert capsys.readouterr().err == ""
    prof.export_memory_timeline("x.json", device="tpu")
    assert "ERROR" in capsys.readouterr().err


def test_operators_have_call_stacks_in_every_file(tier):
    """As in captures of the hardware: each frame `file(line): function`, innermost first, in csv, timeline and database."""
    config = _ExperimentalConfig(export_type=["text", "db"])
    step = model()
    with profile(with_stack=True, experimental_config=config, on_trace_ready=tensorboard_trace_handler("result")):
        step()
    output = the_capture("result") / "ASCEND_PROFILER_OUTPUT"
    with (output / "operator_details.csv").open(newline="") as file:
        in_csv = [row["Call Stack"] for row in csv.DictReader(file) if row["Name"] == "aten::addmm"]
    events = json.loads((output / "trace_view.json").read_text())
    in_trace = [event["args"]["Call stack"] for event in events if event["name"] == "aten::addmm" and event["ph"] == "X"]
    database = sqlite3.connect(output / "ascend_pytorch_profiler.db")
    rows = database.execute(
        "SELECT api.rowid, frame.value FROM PYTORCH_API api JOIN STRING_IDS name ON name.id = api.name"
        " JOIN PYTORCH_CALLCHAINS chain ON chain.id = api.callchainId JOIN STRING_IDS frame ON frame.id = chain.stack"
        " WHERE name.value = 'aten::addmm' ORDER BY api.startNs, api.rowid, chain.stackDepth"
    ).fetchall()
    database.close()
    in_db = [";\r\n".join(text for _, text in frames) for _, frames in itertools.groupby(rows, key=lambda row: row[0])]
    assert len(in_csv) == 2
    assert in_csv == in_trace == in_db
    for stack in in_csv:
        frames = stack.split(";\r\n")
        assert all(re.fullmatch(r".+\(\d+\): .+", frame) for frame in frames)
        assert frames[0].startswith("torch/nn/modules/linear.py(")
        assert any(re.search(r"test_torch\.py\(\d+\): step$", frame) for frame in frames[1:])


def test_exports_say_what_they_need(tier, capsys):
    with profile() as prof:
        torch.ones(2).add(1)
    prof.export_stacks("s.log")
    prof.export_memory_timeline("m.html")
    out = capsys.readouterr().err
    assert "with_stack=True; nothing" in out
    assert "record_shapes=True, profile_memory=True, with_stack=True or with_modules=True" in out
    assert not Path("s.log").exists()


@pytest.mark.parametrize("shapes", [False, True])
def test_level_none_writes_marks_and_operators_only_if_details_are_wanted(tier, shapes):
    config = _ExperimentalConfig(profiler_level="Level_none", mstx=True)
    with profile(experimental_config=config, record_shapes=shapes) as prof:
        mstx.mark("here")
        torch.ones(2).add(1)
    prof.export_chrome_trace("t.json")
    names = [event.get("name") for event in json.loads(Path("t.json").read_text())]
    assert ("here" in names, "aten::add" in names) == (True, shapes)


def test_kineto_profile_removes_its_capture(tier):
    prof = _KinetoProfile(record_shapes=True)
    prof.start()
    torch.ones(2).add(1)
    prof.stop()
    prof.export_chrome_trace("result_dir/trace.json")
    assert any(event.get("name") == "aten::add" for event in json.loads(Path("result_dir/trace.json").read_text()))
    assert list(Path("export_only_prof_dir").iterdir())
    del prof
    gc.collect()
    assert not list(Path("export_only_prof_dir").iterdir())


def test_child_threads(tier, capsys):
    found = {}

    def work(name, enabled):
        if enabled:
            profile.enable_profiler_in_child_thread(record_shapes=True)
        torch.ones(3).sigmoid()
        if enabled:
            profile.disable_profiler_in_child_thread()
            torch.ones(3).tanh()
        found[name] = threading.get_native_id()

    with profile(on_trace_ready=lambda prof: None):
        for name, enabled in (("on", True), ("off", False)):
            thread = threading.Thread(target=work, args=(name, enabled))
            thread.start()
            thread.join()
        torch.ones(3).cos()
    ops = stepscope.open(the_capture(".")).ops
    by_thread = {tid: set(names(part)) for (tid,), part in ops.group_by("tid")}
    if tier == "kineto":
        assert capsys.readouterr().err.count("cannot record a child thread") == 1
    else:
        assert "aten::sigmoid" in by_thread[found["on"]]
        assert "aten::tanh" not in by_thread[found["on"]]
    assert found["off"] not in by_thread
    assert "aten::cos" in by_thread[threading.get_native_id()]


def test_all_threads(tier):
    with profile(on_trace_ready=lambda prof: None, all_threads=True):
        thread = threading.Thread(target=lambda: torch.ones(3).sigmoid())
        thread.start()
        thread.join()
    assert "aten::sigmoid" in names(stepscope.open(the_capture(".")).ops)


def test_garbage_collections_and_spool(tier):
    config = _ExperimentalConfig(gc_detect_threshold=0, export_type="db")
    with profile(on_trace_ready=tensorboard_trace_handler("shared"), experimental_config=config, spool_dir="local"):
        torch.ones(3).cos()
        gc.collect()
    for thread in threading.enumerate():
        if thread.name == "stepscope-spool":
            thread.join()
    folder = the_capture("shared")
    assert stepscope.open(folder).gc_pauses.height >= 1
    assert {path.name for path in (folder / "ASCEND_PROFILER_OUTPUT").iterdir()} == {"analyse.done", "ascend_pytorch_profiler.db"}


def test_offline_analysis(tier, tmp_path, capsys):
    for _ in range(2):
        with profile(on_trace_ready=tensorboard_trace_handler("runs", analyse_flag=False)):
            torch.ones(3).cos()
    capsys.readouterr()
    (tmp_path / "runs" / "broken_ascend_pt" / "FRAMEWORK").mkdir(parents=True)
    (tmp_path / "runs" / "broken_ascend_pt" / "ASCEND_PROFILER_OUTPUT").symlink_to(tmp_path)
    results = profiler.analyse("runs", max_process_number=1, export_type="text")
    assert [result.ok for result in results].count(True) == 2
    assert [result.ok for result in results].count(False) == 1
    said = capsys.readouterr().err
    assert said.count("ERROR") == 1
    assert "analyse: 2 of 3 captures analysed in " in said
    assert said.endswith("next: stepscope view runs\n")
    assert profiler.analyse(12) is None
    assert "profiler_path=12 is not a path" in capsys.readouterr().err
    assert profiler.analyse("nowhere") is None
    assert "ERROR" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert profiler.analyse("empty") is None
    assert capsys.readouterr().err.count("WARNING") == 1
    one = next(path for path in (tmp_path / "runs").glob("*_ascend_pt") if "broken" not in path.name)
    assert len(profiler.analyse(str(one), 0, "pdf")) == 1
    said = capsys.readouterr().err
    assert said.count("WARNING") == 2
    assert said.endswith(f"next: stepscope top {one}\n")


def test_a_failing_analysis_is_one_warning(tier, monkeypatch, capsys):
    monkeypatch.setattr("stepscope.child_process._START", "import sys; sys.exit('no memory')")
    with profile(on_trace_ready=tensorboard_trace_handler("r")):
        torch.ones(3).cos()
    out = capsys.readouterr().err
    assert out.count("WARNING") == 1
    assert "no memory" in out
    assert stepscope.open(the_capture("r")).ops.height


def test_without_the_native_observer_it_says_so_once(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("STEPSCOPE_COLLECTOR", raising=False)
    monkeypatch.setattr("stepscope.collect.tiers.native.load_observer", lambda: "there is no C++ compiler")
    monkeypatch.setattr(messages, "_printed", set())
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with profile(on_trace_ready=lambda prof: None):
            torch.ones(3).cos()
    assert capsys.readouterr().err.count("there is no C++ compiler") == 1
    for folder in Path(".").glob("*_ascend_pt"):
        assert (folder / "FRAMEWORK" / "x.kineto_trace.json").exists()


def test_both_tiers_see_the_same_operators(tmp_path, monkeypatch):
    if isinstance(NATIVE, str):
        pytest.skip(NATIVE)
    seen = {}
    for name in ("kineto", "native"):
        monkeypatch.setenv("STEPSCOPE_COLLECTOR", name)
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        step = model()
        with profile(on_trace_ready=lambda prof: None, record_shapes=True, schedule=schedule(wait=0, active=2, repeat=1)) as prof:
            for _ in range(2):
                step()
                prof.step()
        ops = stepscope.open(the_capture(".")).ops
        main = ops.filter(pl.col("tid") == threading.get_native_id())
        seen[name] = main.select(pl.col("name", "shapes").cast(pl.String), "scope").rows()
    assert len(seen["native"]) > 100
    assert [row[0] for row in seen["native"]] == [row[0] for row in seen["kineto"]]
    shaped = [(mine, theirs) for mine, theirs in zip(seen["native"], seen["kineto"], strict=True) if mine[0].startswith("aten::")]
    assert [mine[1] for mine, _ in shaped] == [theirs[1] for _, theirs in shaped]


def test_importing_the_profiler_does_not_import_torch():
    code = "import sys, stepscope.profiler; sys.exit('torch' in sys.modules or 'polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_example_runs(tmp_path):
    example = Path(__file__).resolve().parents[3] / "examples" / "profile_training.py"
    done = subprocess.run([sys.executable, str(example), "out"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "operators in 4 steps" in done.stdout
    assert stepscope.open(the_capture(tmp_path / "out")).facts.metadata["model"] == "one encoder layer"


def test_operator_arguments_lie_beside_the_capture(tier):
    config = _ExperimentalConfig(record_op_args=True)
    with profile(on_trace_ready=tensorboard_trace_handler("r"), experimental_config=config):
        torch.ones(3, 4).matmul(torch.ones(4, 5))
    folder = the_capture("r")
    lines = (folder.parent / f"{folder.name}_op_args" / "op_args.jsonl").read_text().splitlines()
    (product,) = [record for record in map(json.loads, lines) if record["name"] == "aten::mm"]
    assert product["shapes"] == "3,4;4,5"
    assert product["dtypes"] == "float;float"
    assert product["ts"] > 10**18


def test_flops_by_operator_and_by_step(tier, capsys):
    a, b = torch.ones(3, 4), torch.ones(4, 5)
    image, kernel = torch.ones(1, 2, 8, 8), torch.ones(3, 2, 3, 3)
    plan = schedule(wait=0, active=2, repeat=1)
    with profile(on_trace_ready=tensorboard_trace_handler("r"), with_flops=True, schedule=plan) as prof:
        for _ in range(2):
            torch.mm(a, b)
            torch.conv2d(image, kernel, stride=2)
            prof.step()
    product, convolution = 2 * 3 * 4 * 5, 2 * (3 * 3) * (2 * 3 * 3 * 3)
    folder = the_capture("r")
    output = folder / "ASCEND_PROFILER_OUTPUT"
    rows = list(csv.DictReader((output / "operator_flops.csv").read_text().splitlines()))
    assert [(row["Name"], row["Calls"], row["FLOPs"]) for row in rows] == [
        ("aten::conv2d", "2", str(2 * convolution)),
        ("aten::mm", "2", str(2 * product)),
    ]
    assert all(float(row["FLOPs/s"]) > 0 for row in rows)
    rows = list(csv.DictReader((output / "step_flops.csv").read_text().splitlines()))
    assert [(row["Step"], row["FLOPs"]) for row in rows] == [(str(step), str(product + convolution)) for step in (0, 1)]
    events = json.loads((output / "trace_view.json").read_text())
    assert [event["args"]["flops"] for event in events if event.get("name") == "aten::mm"] == [product] * 2
    tables = stepscope.open(folder).tables
    assert tables.quality.height == 0
    by_name = {row["name"]: row["flops"] for row in top(tables, by="op").to_dicts()}
    assert (by_name["aten::mm"], by_name["aten::conv2d"]) == (2 * product, 2 * convolution)
    assert top(tables, by="step")["flops"].to_list() == [product + convolution] * 2


def test_max_seconds_ends_the_records_before_the_next_step(monkeypatch, tmp_path, capsys):
    if isinstance(NATIVE, str):
        pytest.skip(NATIVE)
    monkeypatch.setenv("STEPSCOPE_COLLECTOR", "native")
    monkeypatch.chdir(tmp_path)
    plan = schedule(wait=0, active=1, repeat=1)
    switches = {"profile_memory": True, "with_stack": True, "with_modules": True}
    with profile(on_trace_ready=lambda prof: None, schedule=plan, max_seconds=0.05, **switches) as prof:
        torch.ones(3).cos()
        prof.prof_if._sources[-1]._thread.join()  # the watch, which ends with the limit
        assert "max_seconds=0.05" in capsys.readouterr().err
        torch.ones(3).sin()
        prof.step()
    capture = stepscope.open(the_capture("."))
    assert "aten::cos" in names(capture.ops)
    assert "aten::sin" not in names(capture.ops)
    assert capture.steps["step"].to_list() == [0]
    assert capture.facts.profiler_info["collector"]["limit"] == "max_seconds=0.05"


@pytest.mark.parametrize(("workers", "started"), [(0, None), (2, "fork"), (1, "spawn")])
def test_batches_of_a_data_loader(workers, started, tier):
    data = torch.utils.data.DataLoader(torch.arange(12.0), batch_size=4, num_workers=workers, multiprocessing_context=started)
    with profile(on_trace_ready=lambda prof: None):
        for batch in data:
            batch.sin()
    capture = stepscope.open(the_capture("."))
    assert capture.quality.height == 0
    batches = [name for name in names(capture.ops) if name.startswith("enumerate(DataLoader)")]
    assert len(batches) == 3 + 1  # the last one finds that there are no more
    assert capture.data_stages.height == (3 if workers else 0)
    assert all(capture.ops["end_ns"] >= capture.ops["start_ns"])

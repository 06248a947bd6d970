"""What MindSpore's own profiler gets wrong, and ours must not (docs/formats/mindspore.md 2.7)."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from training import NETWORK, captures, check_every_file, results, run

import stepscope

pytestmark = pytest.mark.slow  # training processes


def kernels(capture) -> int:
    return stepscope.open(capture, source="raw").kernels.height


def test_misuse_leaves_the_next_profiler_alone(tmp_path):
    """1: stop without step; 2: a handler's folder; 3: stop without analyse. Four profilers in one process, all complete."""
    said = run(
        tmp_path,
        NETWORK
        + """
first = Profiler(schedule=schedule(wait=0, warmup=0, active=2), output_path="./one")
train(); first.stop()
second = Profiler(output_path="./two"); train(2); second.stop()
handler = tensorboard_trace_handler("./three", analyse_flag=False)
with Profiler(schedule=schedule(wait=0, warmup=0, active=1), on_trace_ready=handler) as third:
    train(); third.step(); train()
fourth = Profiler(output_path="./four"); train(3); fourth.stop()
""",
        MODE="pynative",
    )
    assert "step() was never called" in said
    assert "Traceback" not in said
    counted = {name: [kernels(capture) for capture in captures(tmp_path / name)] for name in ("one", "two", "three", "four")}
    (per_step,) = counted["one"]
    assert per_step > 0
    assert counted["two"] == [2 * per_step]
    assert counted["four"] == [3 * per_step]
    assert counted["three"][0] == per_step


def test_async_is_another_process_and_pretty_is_pretty(tmp_path):
    """4: both arguments of analyse have an effect."""
    said = run(
        tmp_path,
        NETWORK
        + """
import time
prof = Profiler(output_path="./quick"); train(); prof.stop()
began = time.monotonic(); prof.analyse(mode="async", pretty=True); print("returned after", time.monotonic() - began)
print("done at once:", any("ASCEND_PROFILER_OUTPUT" in names for _, names, _ in os.walk("quick")))
""",
        MODE="graph",
    )
    assert "done at once: False" in said
    (capture,) = captures(tmp_path / "quick")
    assert "trace_view.json" in results(capture)  # the interpreter waited for it
    assert (capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text().count("\n") > 100


def test_times_memory_and_settings_of_captures_in_a_row(tmp_path):
    """6, 7: times are those of the wall clock to the nanosecond; 8: no rows of earlier captures; 9: profiler_info is written."""
    said = run(
        tmp_path,
        NETWORK
        + """
import time
for number in range(3):
    began = time.time_ns()
    more = {"record_shapes": True, "data_process": True} if number == 2 else {}
    prof = Profiler(output_path=f"./run{number}", profile_memory=True, **more)
    train(2)
    if more:
        read_data()
    prof.stop()
    print("window", began, time.time_ns())
Profiler.offline_analyse("./run2")
""",
        MODE="pynative",
    )
    windows = [tuple(map(int, line.split()[1:])) for line in said.splitlines() if line.startswith("window")]
    rows = []
    for number, (began, ended) in enumerate(windows):
        (capture,) = captures(tmp_path / f"run{number}")
        tables = stepscope.open(capture, source="raw").tables
        for name in ("ops", "kernels"):
            assert began <= tables[name]["start_ns"].min()
            assert tables[name]["end_ns"].max() <= ended
        longest = (tables.ops["end_ns"] - tables.ops["start_ns"]).max()
        assert (ended - began) / 100 < longest < ended - began  # a wrong frequency is off by far more
        memory = tables.memory_events["time_ns"]
        assert began <= memory.min() <= memory.max() <= ended
        rows.append(memory.len())
        info = json.loads((capture / "profiler_info_0.json").read_bytes())
        assert info["ms_version"]
        assert info["profiler_parameters"]["profile_memory"] is True
        raw = (capture / "FRAMEWORK" / "cpu_op_execute_timestamp_0.txt").read_text()
        assert all(str(start) in raw for start in tables.kernels["start_ns"].to_list())
    assert rows[0] == rows[1] == rows[2]
    (last,) = captures(tmp_path / "run2")
    check_every_file(last)
    shown = json.loads((last / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes())
    starts = {int(event["ts"].replace(".", "")) for event in shown if event["pid"] == 2 and event["ph"] == "X"}
    assert starts == set(stepscope.open(last, source="raw").kernels["start_ns"].to_list())


def test_both_sources_of_a_graphs_kernels_agree(tmp_path):
    """The recorder's launches and the CPU profiler's kernels are the same, name by name."""
    run(
        tmp_path,
        NETWORK
        + """
for name, more in (("launches", {}), ("kernels", {"record_shapes": True, "profile_memory": True, "data_process": True})):
    prof = Profiler(output_path="./" + name, **more); train(3); read_data(); prof.stop()
Profiler.offline_analyse("./kernels")
""",
        MODE="graph",
    )
    frames = {}
    for name in ("launches", "kernels"):
        (capture,) = captures(tmp_path / name)
        assert (next((capture / "FRAMEWORK").glob("cpu_op_execute*"), None) is None) == (name == "launches")
        frames[name] = stepscope.open(capture, source="raw").kernels
    names = [frame["name"].cast(pl.String).value_counts().sort("name") for frame in frames.values()]
    assert names[0].equals(names[1])
    assert frames["kernels"]["input_shapes"].null_count() == 0
    check_every_file(capture)


def test_an_unknown_version_says_so_and_records_what_it_can(tmp_path):
    said = run(
        tmp_path,
        NETWORK
        + """
ms.__version__ = "9.9.9"
plan = schedule(wait=0, warmup=0, active=2)
with Profiler(schedule=plan, on_trace_ready=lambda prof: None, output_path="./later", with_stack=True) as prof:
    train(); prof.step(); train(); prof.step()
""",
        MODE="graph",
    )
    assert "MindSpore 9.9.9 is unknown" in said
    assert "only calls of cells are recorded" in said
    capture = captures(tmp_path / "later")[0]
    tables = stepscope.open(capture, source="raw")
    assert tables.steps["step"].to_list() == [0, 1]
    assert tables.kernels.height > 0
    assert tables.python_calls.height == 2  # the outermost cell, once in each step
    assert (tables.python_calls["kind"] == "module").all()
    assert tables.kernels.filter(
        ~pl.col("start_ns").is_between(tables.steps["start_ns"].min(), tables.steps["end_ns"].max())
    ).is_empty()


def test_the_file_of_the_dynamic_profiler_analyses_by_default(tmp_path):
    """10: what is written is what is documented; and the file switches recording on while training runs."""
    run(
        tmp_path,
        NETWORK
        + """
import json
from pathlib import Path
from stepscope.mindspore import DynamicProfilerMonitor
monitor = DynamicProfilerMonitor("./config", output_path="./seen", poll_interval=1)
file = Path("config/profiler_config.json")
said = json.loads(file.read_text())
assert said["analyse"] is True and said["start_step"] == -1, said
file.write_text(json.dumps({**said, "start_step": 2, "stop_step": 3}))
for _ in range(5):
    monitor.step()
    train()
""",
        MODE="graph",
    )
    (capture,) = captures(tmp_path / "seen" / "rank0_start2_stop3")
    assert "trace_view.json" in results(capture)
    assert stepscope.open(capture, source="raw").steps["step"].to_list() == [2, 3]


@pytest.mark.parametrize(
    ("mode", "prof_path", "said"),
    [(0o777, "./seen", "is writable by everyone"), (0o755, "/elsewhere/x", "is outside")],
    ids=["open-folder", "other-place"],
)
def test_a_file_that_others_may_have_written_is_not_followed(tmp_path, mode, prof_path, said):
    (tmp_path / "config").mkdir()
    (tmp_path / "config").chmod(mode)
    output = run(
        tmp_path,
        NETWORK
        + f"""
import json
from pathlib import Path
from stepscope.mindspore import DynamicProfilerMonitor
monitor = DynamicProfilerMonitor("./config", output_path="./seen", poll_interval=1)
file = Path("config/profiler_config.json")
file.write_text(json.dumps({{**json.loads(file.read_text()), "start_step": 1, "stop_step": 2, "prof_path": {prof_path!r}}}))
for _ in range(3):
    monitor.step()
    train()
""",
    )
    assert said in output
    assert not (tmp_path / "seen").exists()
    assert not Path(prof_path).is_absolute() or not Path(prof_path).exists()


def test_a_killed_process_leaves_settings_and_a_clock(tmp_path):
    with pytest.raises(AssertionError):
        run(
            tmp_path,
            NETWORK
            + """
import signal
prof = Profiler(output_path="./killed")
train()
os.kill(os.getpid(), signal.SIGKILL)
""",
            MODE="graph",
        )
    (capture,) = captures(tmp_path / "killed")
    info = json.loads((capture / "profiler_info_0.json").read_bytes())
    assert info["collector"]["complete"] is False
    assert info["clock"]["freq_mhz"] > 1

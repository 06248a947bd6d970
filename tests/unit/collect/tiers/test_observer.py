"""The native observer against torch.profiler on the same code, and its own records."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import polars as pl
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from observed import Training, observed, the_observer  # noqa: E402

from stepscope.collect.tiers.observer import ObserverError, ObserverOptions  # noqa: E402
from stepscope.formats.framework import read  # noqa: E402
from stepscope.formats.framework.clock import FrameworkClock  # noqa: E402
from stepscope.tables.tensor_text import parse_module_params, parse_optimizer_params  # noqa: E402


@pytest.fixture(autouse=True)
def observer():
    return the_observer()


def kineto_events(work, **options):
    """Events of torch.profiler, without its own bookkeeping around the block."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as profiler:
        work()
    return profiler.profiler.kineto_results.events()


def kineto_ops(events):
    ops = [event for event in events if event.scope() <= 9 and not event.is_python_function() and event.name() != "[memory]"]
    return sorted(ops, key=lambda event: (event.start_ns(), -event.duration_ns()))


def from_zero(numbers):
    """Sequence numbers go on from run to run; where they begin does not matter."""
    low = min(number for number in numbers if number >= 0)
    return [number - low if number >= 0 else -1 for number in numbers]


def in_kineto_words(dtypes):
    return "" if dtypes is None else ";".join("" if word == "None" else word for word in dtypes.split(";"))


def test_same_operators_as_torch_profiler(tmp_path):
    training = Training()
    theirs = kineto_ops(kineto_events(training.step, record_shapes=True))
    frames, report = observed(tmp_path, training.step, record_shapes=True)
    ours = frames["op_range"]
    assert ours["name"].to_list() == [event.name() for event in theirs]
    assert ours["scope"].to_list() == [event.scope() for event in theirs]
    # torch.profiler copies these two from each autograd node to the engine's range around it; the raw files do not.
    raw = [row for row, event in enumerate(theirs) if not event.name().startswith("autograd::engine")]
    assert from_zero([ours["sequence_number"][row] for row in raw]) == from_zero([theirs[row].sequence_nr() for row in raw])
    # It also leaves the thread out where there is no sequence number.
    paired = [row for row in raw if theirs[row].sequence_nr() >= 0]
    assert [ours["forward_thread_id"][row] for row in paired] == [theirs[row].fwd_thread_id() for row in paired]
    assert ours.filter(pl.col("scope") == 1)["forward_thread_id"].unique().to_list() == [1]
    assert ours["is_async"].to_list() == [int(event.is_async()) for event in theirs]
    assert ours["start_thread_id"].to_list() == [event.device_resource_id() for event in theirs]
    shapes = [";".join(",".join(map(str, shape)) for shape in event.shapes()) for event in theirs]
    assert [text or "" for text in ours["shapes"]] == shapes
    assert [in_kineto_words(text) for text in ours["dtypes"]] == [";".join(event.dtypes()) for event in theirs]
    assert report.operators == ours.height
    assert report.dropped == 0
    assert report.limit is None


def test_same_allocations_as_torch_profiler(tmp_path):
    training = Training()
    kineto_events(training.step, profile_memory=True)  # torch counts a block's end only if it saw its beginning
    theirs = [event.nbytes() for event in kineto_events(training.step, profile_memory=True) if event.name() == "[memory]"]
    frames, report = observed(tmp_path, training.step, profile_memory=True)
    memory = frames["memory_usage"]
    assert memory["alloc_size"].to_list() == theirs
    assert report.memory_events == len(theirs)
    assert (memory["data_type"] == (memory["alloc_size"] < 0)).all()
    assert memory["device_type"].unique().to_list() == [0]
    # docs/formats/framework.md 13: totals follow from the sizes
    assert memory["total_allocated"].diff().drop_nulls().to_list() == memory["alloc_size"][1:].to_list()


def test_same_flops_as_torch_profiler(tmp_path):
    image, kernel = torch.randn(2, 4, 9, 9), torch.randn(6, 2, 3, 3)
    a, b = torch.randn(3, 4), torch.randn(4, 5)

    def work():
        torch.mm(a, b)
        torch.addmm(torch.zeros(5), a, b)
        torch.bmm(a[None], b[None])
        torch.baddbmm(torch.zeros(1, 3, 5), a[None], b[None])
        torch.mul(a, a)
        torch.add(a, 1)
        torch.conv2d(image, kernel, stride=2, padding=1, groups=2)
        torch.relu(a)

    theirs = {event.name(): event.flops() for event in kineto_events(work, with_flops=True) if event.flops()}
    frames, _ = observed(tmp_path, work, with_flops=True)
    counted = frames["op_range"].filter(pl.col("flops").is_not_null())
    assert dict(zip(counted["name"], counted["flops"].cast(pl.Int64), strict=True)) == theirs
    assert theirs["aten::mm"] == 2 * 3 * 4 * 5
    assert frames["op_range"]["shapes"].null_count() == frames["op_range"].height  # not asked for


def test_same_python_calls_as_torch_profiler(tmp_path):
    training = Training()

    events = [event for event in kineto_events(training.step, with_stack=True) if event.is_python_function()]
    events.sort(key=lambda event: event.start_ns())
    modules = [event.name() for event in events if event.name().startswith("nn.Module: ")]
    observed(tmp_path, training.step, with_stack=True)
    calls = read(tmp_path, FrameworkClock()).python_calls.sort("start_ns")
    assert calls.filter(pl.col("kind") == "module")["name"].to_list() == modules
    ours = set(calls.filter(pl.col("kind") == "python")["name"].cast(pl.String))
    theirs = {event.name() for event in events if not event.name().startswith(("nn.Module: ", "<"))}
    inner = {name for name in theirs if name.startswith(("torch/nn/", "torch/optim/"))}
    assert inner
    assert inner <= ours


def test_python_calls_are_balanced(tmp_path):
    training = Training()
    _, report = observed(tmp_path, training.step, with_stack=True)
    tables = read(tmp_path, FrameworkClock())
    assert tables.quality.height == 0
    assert report.python_events == 2 * tables.python_calls.height


def test_operators_lie_inside_the_calls_that_ran_them(tmp_path):
    layer = torch.nn.Linear(4, 4)
    observed(tmp_path, lambda: layer(torch.ones(1, 4)), with_modules=True)
    tables = read(tmp_path, FrameworkClock())
    module = tables.python_calls.filter(pl.col("kind") == "module").row(0, named=True)
    linear = tables.ops.filter(pl.col("name") == "aten::linear").row(0, named=True)
    assert module["name"] == "nn.Module: Linear_0"
    assert module["start_ns"] <= linear["start_ns"] <= linear["end_ns"] <= module["end_ns"]


def test_tensors_and_parameters_for_the_memory_timeline(tmp_path):
    training = Training()
    frames, _ = observed(tmp_path, training.step, record_shapes=True, profile_memory=True, with_stack=True)
    params = frames["param_tensor_info"]
    module = parse_module_params(params["module_params"].drop_nulls()[0])
    optimizer = parse_optimizer_params(params["optimizer_params"].drop_nulls()[0])
    weights = list(training.model.parameters())
    assert len(optimizer) == len(weights)
    assert {param.tensor.storage for param in optimizer} == {weight.untyped_storage().data_ptr() for weight in weights}
    assert set(optimizer[0].state) == {"step", "exp_avg", "exp_avg_sq"}
    assert module[0].gradient is not None
    ops = frames["op_range"]
    addmm = ops.filter(pl.col("name") == "aten::addmm").row(0, named=True)
    assert len(addmm["tensors"].split(")")) == 3
    assert addmm["scalars"] == "Int;Int"
    assert addmm["tensors"].split(")")[0].split(";")[2:6] == ["float", "4", "16", "1"]
    keys = set(frames["python_tracer_hash"]["key"])
    assert set(frames["python_tracer_func"]["key"]) <= keys
    assert set(params["key"]) <= keys


def test_tensor_lists(tmp_path):
    a, b = torch.ones(2, 3), torch.ones(4, 3, dtype=torch.float64)
    work = lambda: torch._foreach_add([a, a.half()], 1)  # noqa: E731
    frames, _ = observed(
        tmp_path, lambda: (work(), torch.block_diag(a, b)), record_shapes=True, profile_memory=True, with_stack=True
    )
    op = frames["op_range"].filter(pl.col("name") == "aten::_foreach_add").row(0, named=True)
    assert (op["dtypes"], op["shapes"], op["scalars"]) == ("TensorList;Scalar", ";", "Int")
    first, second, rest = op["tensor_lists"].split(")")
    assert (first.split(";")[2:], rest) == (["float", "4", "2,3", "3,1", "0", "-1"], "")
    assert second.split(";")[2:4] == ["c10::Half", "2"]


def test_ranges_steps_and_marks(tmp_path, observer):
    def work():
        observer.mark_step(3)
        observer.push_range("outer")
        observer.push_range("inner \u00e9 " + "x" * 300)
        observer.pop_range()
        observer.mark_step(4)
        observer.pop_range()
        observer.pop_range()  # one too many does nothing
        observer.mark(1, 42, "MatMul")
        observer.push_range("left open")
        observer.mark_step(None)

    frames, report = observed(tmp_path, work)
    ranges = frames["op_range"]
    assert ranges["name"].to_list() == ["ProfilerStep#3", "outer", "inner \u00e9 " + "x" * 300, "ProfilerStep#4", "left open"]
    assert ranges["scope"].unique().to_list() == [7]
    step, outer, inner, after, left_open = ranges.iter_rows(named=True)
    assert left_open["end"] >= left_open["start"]  # it ends with the recording
    assert step["start"] <= outer["start"] <= inner["start"] <= inner["end"] <= step["end"] <= after["start"] <= outer["end"]
    marks = frames["op_mark"].select("category", "correlation_id", "thread_id", "name").rows()
    assert marks == [(1, 42, threading.get_native_id(), "MatMul")]
    assert report.marks == 1


def test_ranges_that_end_elsewhere(tmp_path, observer):
    seen = []

    def work():
        number = observer.range_start("load")
        thread = threading.Thread(target=lambda: (seen.append(threading.get_native_id()), observer.range_end(number)))
        thread.start()
        thread.join()
        observer.range_end(number)  # again, and one nobody opened: nothing
        observer.range_end(999_999)

    frames, _ = observed(tmp_path, work)
    load = frames["op_range"].row(0, named=True)
    assert (load["start_thread_id"], load["end_thread_id"], load["is_async"]) == (threading.get_native_id(), seen[0], 1)


def test_silence_from_another_thread_ends_every_kind_of_record(tmp_path, observer):
    tensor = torch.ones(2)
    observer.prepare(tmp_path, ObserverOptions(record_shapes=True, profile_memory=True, with_stack=True))
    observer.start()
    observer.push_range("open at the limit")
    tensor.cos()
    thread = threading.Thread(target=observer.silence)
    thread.start()
    thread.join()
    tensor.mul(2)
    torch.ones(1000)
    observer.pop_range()
    report = observer.stop()
    assert report.limit is None
    tables = read(tmp_path, FrameworkClock())
    assert tables.quality.height == 0
    assert tables.ops["name"].cast(pl.String).to_list() == ["open at the limit", "aten::cos"]
    assert tables.memory_events["bytes"].max() < 4000
    assert tables.ops["end_ns"].max() <= tables.python_calls["end_ns"].max()
    assert not any("method mul " in name for name in tables.python_calls["name"].cast(pl.String))
    assert sys.getprofile() is None


def in_a_thread(work):
    seen = []
    thread = threading.Thread(target=lambda: (seen.append(threading.get_native_id()), work()))
    thread.start()
    thread.join()
    return seen[0]


def test_other_threads_record_when_asked(tmp_path, observer):
    seen = {}

    def asked():
        observer.enable_child_thread()
        with pytest.raises(ObserverError, match="already"):
            observer.enable_child_thread()
        torch.ones(3)
        observer.disable_child_thread()
        torch.zeros(3)

    def work():
        seen["asked"] = in_a_thread(asked)
        seen["other"] = in_a_thread(lambda: torch.ones(5))

    frames, report = observed(tmp_path, work, profile_memory=True)
    ops = frames["op_range"].filter(pl.col("start_thread_id") == seen["asked"])
    assert ops["name"].to_list() == ["aten::ones", "aten::empty", "aten::fill_"]
    assert seen["other"] not in frames["op_range"]["start_thread_id"]
    assert seen["asked"] in frames["memory_usage"]["thread_id"]
    assert {thread.thread for thread in report.threads} == {threading.get_native_id(), seen["asked"]}
    with pytest.raises(ObserverError, match="no capture"):
        observer.enable_child_thread()


def test_all_threads(tmp_path):
    seen = []

    def busy():
        torch.ones(7)

    frames, _ = observed(tmp_path, lambda: seen.append(in_a_thread(busy)), all_threads=True, profile_memory=True, with_stack=True)
    assert frames["op_range"].filter(pl.col("start_thread_id") == seen[0])["name"][0] == "aten::ones"
    assert seen[0] in frames["memory_usage"]["thread_id"]
    calls = read(tmp_path, FrameworkClock()).python_calls.filter(pl.col("tid") == seen[0])
    assert calls["name"].cast(pl.String).str.contains("busy").any()
    assert "_trace_new_thread" not in "".join(calls["name"].cast(pl.String))


def test_a_thread_of_an_older_capture_is_not_recorded_again(tmp_path, observer):
    turn, done = threading.Barrier(2), threading.Barrier(2)

    def worker():
        observer.enable_child_thread()
        for _ in range(3):
            torch.ones(2)
            done.wait()
            turn.wait()

    thread = threading.Thread(target=worker)
    first, _ = observed(tmp_path / "1", lambda: (thread.start(), done.wait()))
    second, _ = observed(tmp_path / "2", lambda: (turn.wait(), done.wait()))
    third, _ = observed(tmp_path / "3", lambda: (turn.wait(), done.wait()), all_threads=True)
    turn.wait()
    thread.join()
    counts = [frames["op_range"].filter(pl.col("name") == "aten::ones").height for frames in (first, second, third)]
    assert counts == [1, 0, 1]


def test_records_of_many_chunks_and_names(tmp_path):
    """More records than one chunk holds, more texts than a thread remembers, one range open over all of them."""
    tensor = torch.zeros(1)

    def work():
        with torch.profiler.record_function("all"):
            for number in range(20_000):
                tensor.new_empty(number)

    frames, report = observed(tmp_path, work, record_shapes=True, profile_memory=True)
    ops = frames["op_range"]
    assert report.dropped == 0
    assert ops.filter(pl.col("name") == "aten::new_empty").height == 20_000
    whole = ops.filter(pl.col("name") == "all")
    assert whole["start"][0] <= ops["start"].filter(ops["name"] == "aten::empty").min()
    assert whole["end"][0] >= ops["end"].filter(ops["name"] == "aten::empty").max()


def test_inputs_beyond_what_a_thread_remembers(tmp_path):
    base = torch.zeros(40_000)

    def work():
        for number in range(40_000):
            base[:number].detach()

    frames, _ = observed(tmp_path, work, record_shapes=True)
    shapes = frames["op_range"].filter(pl.col("name") == "aten::detach")["shapes"]
    assert shapes.to_list() == [str(number) for number in range(40_000)]


def test_odd_tensors(tmp_path):
    sparse = torch.eye(3).to_sparse()
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)

    def work():
        sparse.clone()
        nested + 1
        torch.ones(()).clone()

    frames, _ = observed(tmp_path, work, record_shapes=True, profile_memory=True, with_stack=True)
    clones = frames["op_range"].filter(pl.col("name") == "aten::clone")
    assert "3,3;" in clones["shapes"].to_list()
    assert ";" in clones["shapes"].to_list()


def test_beside_torch_profiler(tmp_path):
    """Both see every operator; memory belongs to whoever came first."""
    training = Training()
    theirs = []
    frames, _ = observed(tmp_path, lambda: theirs.extend(kineto_ops(kineto_events(training.step))))
    assert theirs
    assert frames["op_range"].height >= len(theirs)


def test_order_of_calls(tmp_path, observer):
    with pytest.raises(ObserverError, match="prepare"):
        observer.start()
    with pytest.raises(ObserverError, match="nothing"):
        observer.stop()
    observer.prepare(tmp_path, ObserverOptions())
    assert observer.phase == "prepared"
    observer.prepare(tmp_path, ObserverOptions())  # a warm-up given up
    observer.start()
    with pytest.raises(ObserverError, match="already"):
        observer.prepare(tmp_path, ObserverOptions())
    assert observer.phase == "recording"
    observer.stop()
    assert observer.phase == "idle"
    observer.push_range("nobody listens")
    observer.pop_range()
    assert observer.range_start("nobody listens") == 0


def test_profile_function_of_the_user_comes_back(tmp_path):
    def mine(frame, event, argument):
        return None

    sys.setprofile(mine)
    try:
        observed(tmp_path, lambda: torch.ones(1), with_stack=True)
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(None)


def test_files_are_private_and_appear_with_their_first_bytes(tmp_path):
    before = os.umask(0)
    try:
        observed(tmp_path, lambda: torch.ones(1))
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {"torch.op_range": 0o640}


def test_importing_collect_does_not_import_torch():
    code = "import sys, stepscope.collect.tiers.observer; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

"""Tasks of the simulated NPU run later, beside each other and in order, on threads of their own."""

from __future__ import annotations

import functools
import itertools
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from npu_process import on_npu  # noqa: E402

SECONDS = 30  # nobody waits so long unless something is broken
waiting: dict[str, threading.Event | threading.Barrier] = {}


@functools.cache
def gate():
    """An operator whose kernel waits until the test lets it go on."""
    library = torch.library.Library("simnpu_test", "FRAGMENT")
    library.define("gate(Tensor x, str name) -> Tensor")

    def kernel(x, name):
        waiting[name].wait(SECONDS)
        return x + 1

    library.impl("gate", kernel, "CPU")
    return library


def gated(x, name, lock):
    """Queue the operator on the current stream; it waits for `lock`."""
    gate()
    waiting[name] = threading.Event()
    waiting[name].set()
    torch.ops.simnpu_test.gate(x, name)  # learned while the host waits
    torch.npu.synchronize()
    waiting[name] = lock
    return torch.ops.simnpu_test.gate(x, name)


def recorded(work):
    from stepscope.simnpu.records import Records

    records = Records()
    records.start()
    work()
    torch.npu.synchronize()
    records.stop()
    assert records.lost() == 0
    return records


@on_npu
def test_the_host_is_ahead_of_the_device():
    lock = threading.Event()
    x = torch.zeros(4, device="npu")
    y = gated(x, "ahead", lock)
    for _ in range(100):
        y += 1
    assert not torch.npu.current_stream().query()
    lock.set()
    torch.npu.synchronize()
    assert torch.npu.current_stream().query()
    assert y.tolist() == [101.0] * 4


@on_npu
def test_kernels_of_two_streams_overlap():
    x = torch.zeros(4, device="npu")
    first, second = torch.npu.Stream(), torch.npu.Stream()
    both = threading.Barrier(2)  # each kernel goes on only while the other runs too
    opened = threading.Event()
    opened.set()
    gated(x, "both", opened)
    torch.npu.synchronize()
    waiting["both"] = both
    results = []

    def launch():
        for stream in (first, second):
            with torch.npu.stream(stream):
                results.append(torch.ops.simnpu_test.gate(x, "both"))

    records = recorded(launch)
    assert not both.broken
    assert [result.tolist() for result in results] == [[1.0] * 4] * 2
    tasks = records.tasks()
    kernels = tasks[tasks["kind"] == 0]
    last = [kernels[kernels["stream"] == stream.stream_id][-1] for stream in (first, second)]
    assert max(last[0]["start"], last[1]["start"]) < min(last[0]["end"], last[1]["end"])


@on_npu
def test_events_order_two_streams():
    lock = threading.Event()
    x = torch.zeros(4, device="npu")
    side = torch.npu.Stream()
    done = torch.npu.Event()
    x * 2  # learned: the host does not wait for it below
    y = gated(x, "order", lock)
    done.record()
    with torch.npu.stream(side):
        side.wait_event(done)
        z = y * 2
    assert not done.query()
    assert not side.query()
    lock.set()
    side.synchronize()
    assert z.tolist() == [2.0] * 4
    assert done.query()


@on_npu
def test_an_event_waits_for_its_newest_recording():
    lock = threading.Event()
    x = torch.zeros(4, device="npu")
    done = torch.npu.Event()
    done.record()
    done.synchronize()
    gated(x, "again", lock)
    done.record()
    assert not done.query()
    lock.set()
    done.synchronize()
    assert done.query()


@on_npu
def test_time_between_events_is_time_on_the_device():
    begin, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    x = torch.randn(64, 64, device="npu")

    def work():
        begin.record()
        x @ x
        end.record()

    records = recorded(work)
    (kernel,) = [task for task in records.tasks() if task["kind"] == 0]
    assert begin.elapsed_time(end) * 1e6 >= kernel["end"] - kernel["start"]


@on_npu
def test_waiting_holds_no_lock_of_the_interpreter():
    lock = threading.Event()
    gated(torch.zeros(4, device="npu"), "free", lock)
    waiters = [
        threading.Thread(target=wait)
        for wait in (torch.npu.synchronize, torch.npu.current_stream().synchronize, torch.ones(1, device="npu").item)
    ]
    for waiter in waiters:
        waiter.start()
    assert all(waiter.is_alive() for waiter in waiters)  # this thread still runs
    lock.set()
    for waiter in waiters:
        waiter.join(SECONDS)
        assert not waiter.is_alive()


@on_npu
def test_pinned_memory_is_copied_later():
    lock = threading.Event()
    gated(torch.zeros(4, device="npu"), "pinned", lock)
    source, target = torch.arange(4.0).pin_memory(), torch.zeros(4).pin_memory()
    on_device = source.to("npu", non_blocking=True)
    target.copy_(on_device, non_blocking=True)
    pageable = torch.arange(4.0)
    staged = pageable.to("npu", non_blocking=True)
    pageable.zero_()  # was copied already
    assert target.tolist() == [0.0] * 4
    lock.set()
    torch.npu.synchronize()
    assert target.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert staged.tolist() == [0.0, 1.0, 2.0, 3.0]


@on_npu
def test_every_task_goes_through_queue_and_launch_in_order():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(4, 8)

    def step():
        optimizer.zero_grad()
        loss = model(batch.to("npu")).square().mean()
        loss.backward()
        optimizer.step()
        assert loss.item() > 0

    step()
    records = recorded(step)
    tasks = records.tasks()
    assert len(set(tasks["connection"])) == len(tasks) > 10
    stamps = ("enqueue_start", "enqueue_end", "dequeue_start", "launch_start", "launch_end", "start", "end")
    for earlier, later in itertools.pairwise(stamps):
        assert np.all(tasks[earlier] <= tasks[later]), (earlier, later)
    assert np.all(tasks["start"][1:] >= tasks["end"][:-1])  # one stream: no overlap
    assert np.all(np.diff(tasks["task"].astype(int)) > 0)
    assert set(tasks["launch_thread"]).isdisjoint(tasks["host_thread"])
    assert len(set(tasks["host_thread"])) == 2  # this one, and autograd's
    kernels = tasks[tasks["kind"] == 0]
    names = [records.description(number)["name"] for number in kernels["description"]]
    assert names.count("aclnnAddmm_MatMulCommon_MatMulV2") == 2
    copies = tasks[(tasks["kind"] == 1) | (tasks["kind"] == 2)]
    assert copies["bytes"].tolist() == [4 * 8 * 4, 4]  # the batch to the device, the loss back


@on_npu
def test_nothing_is_recorded_while_off():
    records = recorded(lambda: torch.ones(2, device="npu") + 1)
    assert len(records.tasks()) > 0
    records.calls()
    records.memory()
    (torch.ones(2, device="npu") + 1).tolist()
    assert [len(rows) for rows in (records.tasks(), records.calls(), records.memory())] == [0, 0, 0]


@on_npu
def test_runtime_calls_are_recorded():
    from stepscope.simnpu.records import CALL_NAMES

    records = recorded(lambda: torch.npu.current_stream().synchronize())
    calls = records.calls()
    assert [CALL_NAMES[call] for call in calls["call"]] == ["aclrtSynchronizeStream", "aclrtSynchronizeDevice"]
    assert np.all(calls["start"] <= calls["end"])
    assert set(calls["thread"]) == {threading.get_native_id()}


@on_npu
def test_every_kernel_was_called_by_an_operator_on_the_observers_clock(tmp_path):
    from observed import observed

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).npu()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(4, 8, device="npu")
    drained = []

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    step()
    frames, _ = observed(tmp_path, lambda: drained.append(recorded(step).tasks()))
    ops = {name: frames["op_range"][name].to_numpy() for name in ("start", "end", "start_thread_id")}
    tasks = drained[0]
    assert len(tasks) > 10
    for task in tasks:
        around = (ops["start"] <= task["enqueue_start"]) & (task["enqueue_end"] <= ops["end"])
        assert np.any(around & (ops["start_thread_id"] == task["host_thread"]))

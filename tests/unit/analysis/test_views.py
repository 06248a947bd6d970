"""Time by module and by stack."""

from __future__ import annotations

from capture_rows import MAIN, WORKER, kernels, op, ops, rows, tables, task

from stepscope.analysis.link.capture import link
from stepscope.analysis.views import module_view


def call(name, start, end, kind="module", tid=MAIN):
    return {"pid": 7, "tid": tid, "start_ns": start, "end_ns": end, "name": name, "kind": kind}


MODEL = link(
    tables(
        python_calls=rows(
            "python_calls",
            call("nn.Module: Net_0", 0, 100),
            call("train.py(3): forward", 5, 95, "python"),
            call("nn.Module: Linear_0", 10, 30),
            call("nn.Module: Linear_1", 40, 60),
            call("nn.Module: Net_0", 200, 250),
            call("nn.Module: Linear_0", 210, 220),
        ),
        ops=ops(
            op("aten::linear", 12, 20, seq=1, stack="a;b"),
            op("aten::linear", 42, 50, seq=2, stack="a;c"),
            op("aten::relu", 70, 80, seq=3, stack="a;b"),
            op("aten::linear", 212, 218, stack="a;b"),
            op("LinearBackward", 300, 320, WORKER, seq=1, fwd_thread=1),
            op("aten::mm", 305, 310, WORKER),
            op("outside", 400, 410),
        ),
        kernels=kernels(
            task(1000, 1010, launch_ns=15, launch_tid=MAIN),
            task(1020, 1040, launch_ns=45, launch_tid=MAIN),
            task(1050, 1080, launch_ns=75, launch_tid=MAIN),
            task(1100, 1140, launch_ns=215, launch_tid=MAIN),
            task(1200, 1250, launch_ns=307, launch_tid=WORKER),
            task(1300, 1360, launch_ns=405, launch_tid=MAIN),
        ),
    )
)


def test_modules_by_path():
    assert module_view(MODEL).rows() == [
        ("Net_0", 0, 2, 100, 150, 30, 100, 50, 4),
        ("Net_0/Linear_0", 1, 2, 30, 30, 50, 50, 50, 2),
        ("Net_0/Linear_1", 1, 1, 20, 20, 20, 20, 0, 1),
    ]


def test_no_python_calls():
    assert module_view(link(tables())).height == 0
    assert module_view(link(tables(ops=ops(op("a", 0, 1))))).height == 0


FIRST_RUN = (
    call("nn.Module: Net_0", 0, 100),
    call("nn.Module: Linear_0", 10, 30),
    call("nn.Module: Block_0", 45, 75),
    call("nn.Module: Linear_1", 50, 60),
)
SECOND_RUN = (call("nn.Module: Block_0", 210, 230, tid=WORKER), call("nn.Module: Linear_1", 212, 220, tid=WORKER))
CHECKPOINTED = link(
    tables(
        python_calls=rows("python_calls", *FIRST_RUN, *SECOND_RUN),
        # As torch records reentrant checkpointing: no numbers in the first run of the block, and in the second run, on the
        # thread of backward, numbers that count anew: 7 is Linear_0's on the main thread.
        ops=ops(
            op("aten::linear", 12, 28, seq=7),
            op("CheckpointFunction", 40, 80, seq=8),
            op("aten::linear", 52, 58),
            op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 200, 300, WORKER, seq=8, fwd_thread=1),
            op("CheckpointFunctionBackward", 201, 299, WORKER, seq=8, fwd_thread=1),
            op("aten::linear", 213, 219, WORKER, seq=7),
            op("autograd::engine::evaluate_function: AddmmBackward0", 240, 260, WORKER, seq=7, fwd_thread=2),
            op("AddmmBackward0", 241, 259, WORKER, seq=7, fwd_thread=2),
            op("torch::autograd::AccumulateGrad", 270, 280, WORKER),
            op("autograd::engine::evaluate_function: AddmmBackward0", 310, 330, WORKER, seq=7, fwd_thread=1),
        ),
        kernels=kernels(
            task(1000, 1001, launch_ns=20, launch_tid=MAIN),
            task(1100, 1102, launch_ns=55, launch_tid=MAIN),
            task(1200, 1204, launch_ns=215, launch_tid=WORKER),
            task(1300, 1308, launch_ns=250, launch_tid=WORKER),
            task(1400, 1416, launch_ns=275, launch_tid=WORKER),
            task(1500, 1532, launch_ns=320, launch_tid=WORKER),
        ),
    )
)


def test_a_checkpointed_block_has_its_second_run_and_its_backward():
    found = {row["path"]: row for row in module_view(CHECKPOINTED).iter_rows(named=True)}
    times = {
        path: (row["calls"], row["host_total_ns"], row["device_total_ns"], row["device_backward_ns"]) for path, row in found.items()
    }
    assert times == {
        "Net_0": (1, 100, 1 + 2 + 4, 8 + 16 + 32),
        "Net_0/Linear_0": (1, 20, 1, 32),
        "Net_0/Block_0": (2, 50, 2 + 4, 8 + 16),
        "Net_0/Block_0/Linear_1": (2, 18, 2 + 4, 8),
    }


def test_a_checkpointed_block_on_a_thread_without_calls_has_the_same_device_times():
    """Modules are recorded on the thread that calls them first; the second run is known by its operators."""
    alone = CHECKPOINTED.replace(python_calls=rows("python_calls", *FIRST_RUN))
    columns = ("path", "device_self_ns", "device_total_ns", "device_backward_ns")
    assert module_view(alone).select(columns).rows() == module_view(CHECKPOINTED).select(columns).rows()

"""Cells of a MindSpore network: names, work done by other threads, and cells inside a compiled graph."""

from __future__ import annotations

from capture_rows import MAIN, WORKER, kernels, op, ops, rows, tables, task

from stepscope.analysis.link.capture import link
from stepscope.analysis.views import has_modules, module_view

DEVICE = 3
CELL = "mindspore/nn/cell.py(1393):nn.Cell.{}.__call__"


def call(cell, start, end, pid=7):
    return {"pid": pid, "tid": MAIN, "start_ns": start, "end_ns": end, "name": CELL.format(cell), "kind": "module"}


def arrow(number, begin, end, kind="mindspore_queue", pid=7):
    (from_tid, from_ns), (to_tid, to_ns) = begin, end
    ends = {"from_pid": pid, "from_tid": from_tid, "from_ns": from_ns, "to_pid": pid, "to_tid": to_tid, "to_ns": to_ns}
    return {"kind": kind, "id": number, **ends}


def device_times(found):
    return {path: tuple(times) for path, *times in found.select("path", "device_self_ns", "device_backward_ns").iter_rows()}


def queued(pid=7):
    """ReLU goes through the front end's thread, Conv2D straight to the device's, and both run after the cells have returned."""
    return link(
        tables(
            python_calls=rows("python_calls", call("Net", 0, 50, pid), call("Conv2d", 5, 20, pid), call("ReLU", 25, 40, pid)),
            ops=ops(
                *(
                    op(*record, pid=pid)
                    for record in (
                        ("RunOp::Conv2D", 10, 15),
                        ("RunOp::ReLU", 30, 35),
                        ("FrontendTask::ReLU", 60, 70, WORKER),
                        ("DeviceTask::Conv2D", 100, 120, DEVICE),
                        ("Kernel::KernelLaunch::Default/Conv2D-op0", 105, 115, DEVICE),
                        ("DeviceTask::pyboost", 130, 150, DEVICE),
                        ("LaunchTask::ReLU", 135, 145, DEVICE),
                    )
                )
            ),
            flows=rows(
                "flows",
                arrow(1, (MAIN, 12), (DEVICE, 100), "mindspore_to_self", pid),
                arrow(2, (MAIN, 32), (WORKER, 60), pid=pid),
                arrow(2, (WORKER, 65), (DEVICE, 130), pid=pid),
            ),
            kernels=kernels(
                task(105, 115, launch_ns=106, launch_tid=DEVICE, pid=pid),
                task(135, 142, launch_ns=136, launch_tid=DEVICE, pid=pid),
            ),
        )
    )


def test_work_of_other_threads_belongs_to_the_cell_that_queued_it():
    assert device_times(module_view(queued())) == {"Net": (0, 0), "Net/Conv2d": (10, 0), "Net/ReLU": (7, 0)}


def test_an_unknown_process_is_one_process():
    assert device_times(module_view(queued(pid=None)))["Net/Conv2d"] == (10, 0)


def graph(*python_calls, tid=MAIN):
    names = ("Default/network-Net/features-SequentialCell/0-Conv2d/Conv2D-op0",
             "Gradients/Default/network-Net/features-SequentialCell/0-Conv2d/Grad_Conv2D/Conv2DBackpropFilter-op0",
             "Default/optimizer-Momentum/ApplyMomentum-op0")  # fmt: skip
    starts = (10, 30, 50)
    return link(
        tables(
            python_calls=rows("python_calls", *python_calls),
            ops=ops(*(op(f"Kernel::KernelLaunch::{name}", at, at + 15, tid) for name, at in zip(names, starts, strict=True))),
            kernels=kernels(*(task(at, at + 5 + at // 10, launch_ns=at + 1, launch_tid=tid) for at in starts)),
        )
    )


def test_cells_inside_a_graph_come_from_the_names_of_its_kernels():
    inside = {"Net": (0, 8), "Net/SequentialCell": (0, 8), "Net/SequentialCell/Conv2d": (6, 8), "Momentum": (10, 0)}
    assert device_times(module_view(graph())) == inside
    below = {f"TrainOneStepCell/{path}": times for path, times in inside.items()}
    for tid in (MAIN, WORKER):  # the runtime may launch on threads of its own; the caller waits for them
        found = device_times(module_view(graph(call("TrainOneStepCell", 0, 100), tid=tid)))
        assert found == {"TrainOneStepCell": (0, 8), **below}


def test_a_capture_of_a_graph_has_modules_without_python_calls():
    assert has_modules(graph())
    assert not has_modules(tables(ops=ops(op("Kernel::KernelLaunch::Default/Conv2D-op0", 0, 1), op("aten::add", 2, 3))))

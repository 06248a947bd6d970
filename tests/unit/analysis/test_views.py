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

"""Files of call stacks for FlameGraph."""

from __future__ import annotations

import pytest
from capture_rows import kernels, op, ops, tables, task

from stepscope.errors import CaptureError
from stepscope.export.stacks import export_stacks
from stepscope.tables import Tables

US = 1000


def capture(**stacks: str | None) -> Tables:
    outer = op("aten::linear", 0, 100 * US, stack=stacks.get("outer", "nn.py(3): f; train.py(9): main"))
    inner = op("aten::mm", 10 * US, 40 * US + 999, stack=stacks.get("inner"), parent=0)
    return tables(
        ops=ops(outer, inner),
        kernels=kernels(task(200 * US, 230 * US, op=0, duration_ns=30_500.0), task(230 * US, 260 * US, op=1, duration_ns=7e3)),
    )


def test_lines_go_from_the_outermost_frame_with_self_time(tmp_path):
    written = export_stacks(capture(inner="mm.py(1): g;\r\nnn.py(3): f"), tmp_path / "stacks.txt", "self_cpu_time_total")
    assert written == tmp_path / "stacks.log"
    assert written.read_text() == "train.py(9): main;nn.py(3): f 69\nnn.py(3): f;mm.py(1): g 30"


@pytest.mark.parametrize("metric", ["self_npu_time_total", "self_cuda_time_total"])
def test_device_time(tmp_path, metric):
    assert export_stacks(capture(), tmp_path / "s.log", metric).read_text() == "train.py(9): main;nn.py(3): f 30"


def test_operators_without_time_are_left_out(tmp_path):
    bare = capture(inner="mm.py(1): g")
    assert export_stacks(bare.replace(kernels=kernels()), tmp_path / "s", "self_npu_time_total").read_text() == ""


def test_frames_of_the_profiler_are_left_out(tmp_path):
    ours = "/usr/lib/python3/site-packages/stepscope/profiler/profiler.py(321): step"
    user = "/home/me/stepscope/train.py(9): main"
    stacks = capture(outer=f"nn.py(3): f;{ours};{user};/opt/stepscope/compat/runner.py(5): run", inner=ours)
    assert export_stacks(stacks, tmp_path / "s.log").read_text() == f"{user};nn.py(3): f 69"


def test_no_stacks_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(CaptureError, match="with_stack=True"):
        export_stacks(capture(outer=None), tmp_path / "s.log")
    assert list(tmp_path.iterdir()) == []


def test_unknown_metric(tmp_path):
    with pytest.raises(CaptureError, match="self_npu_time_total"):
        export_stacks(capture(), tmp_path / "s.log", "total")

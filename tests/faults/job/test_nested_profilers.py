"""The script's own torch.profiler inside ours, and ours inside it: both work, or ours gives way with a warning."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import stepscope
from stepscope.collect.tiers.observer import load_observer

pytest.importorskip("torch", reason="collecting needs torch")
pytestmark = pytest.mark.slow  # each case is a training process of its own

NATIVE = load_observer()

SCRIPT = """
import contextlib, os, sys
import torch
import torch.profiler
from stepscope import profiler as P

def step():
    torch.ones(4, requires_grad=True).sin().sum().backward()

def ours(name):
    os.makedirs(name, exist_ok=True)
    return P.profile(on_trace_ready=P.tensorboard_trace_handler(name, analyse_flag=False), profile_memory=True, with_stack=True)

def theirs():
    return torch.profiler.profile(profile_memory=True, record_shapes=True)

def count(profiler, name):
    return sum(event.name == name for event in profiler.events())

with ours("inside"):
    step()
    with theirs() as nested:
        torch.ones(3).cos()
    torch.ones(3).tan()
print("inside", count(nested, "aten::cos"), count(nested, "aten::tan"))

with theirs() as around:
    with ours("around"):
        torch.ones(3).cosh()
    torch.ones(3).tan()
print("around", count(around, "aten::cosh"), count(around, "aten::tan"))

first, second = ours("crossed"), theirs()
first.start()
second.start()
torch.ones(3).cos()
first.stop()
torch.ones(3).tan()
second.stop()
print("crossed", count(second, "aten::cos"), count(second, "aten::tan"))

with ours("legacy"), torch.autograd.profiler_legacy.profile() as old:
    torch.ones(3).cos()
with ours("raises"), contextlib.suppress(ValueError), theirs():
    raise ValueError

with theirs() as alone:
    torch.ones(3).cos()
print("alone", count(alone, "aten::cos"), torch.autograd.profiler._enable_profiler is torch.autograd._enable_profiler)
"""


def run(folder, tier):
    (folder / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**os.environ, "STEPSCOPE_COLLECTOR": tier, "STEPSCOPE_MIN_FREE_BYTES": "0", "KINETO_LOG_LEVEL": "99"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = [line for line in done.stdout.splitlines() if not line.startswith("[")]
    assert printed == ["inside 1 0", "around 1 1", "crossed 1 1", "alone 1 True"]
    return done.stdout + done.stderr


def capture(folder, name):
    (found,) = (folder / name).glob("*_ascend_pt")
    return stepscope.open(found)


def operators(folder, name):
    return set(capture(folder, name).ops["name"].cast(str))


@pytest.mark.skipif(isinstance(NATIVE, str), reason=str(NATIVE))
def test_both_record_with_the_native_observer(tmp_path):
    said = run(tmp_path, "native")
    assert {"aten::sin", "aten::cos", "aten::tan"} <= operators(tmp_path, "inside")
    assert {"aten::cosh"} <= operators(tmp_path, "around")
    assert {"aten::cos"} <= operators(tmp_path, "crossed")
    inside = capture(tmp_path, "inside")
    at = {name: inside.ops.filter(inside.ops["name"] == name)["start_ns"][0] for name in ("aten::cos", "aten::tan")}
    # Memory is ours again after theirs has ended.
    assert (inside.memory_events["time_ns"] >= at["aten::tan"]).any()
    assert said.count("memory is reported to it") == 2  # theirs inside ours, ours inside theirs; each once


def test_ours_gives_way_where_torch_has_one_profiler(tmp_path):
    said = run(tmp_path, "kineto")
    assert "the script starts torch.profiler, and both cannot record" in said
    names = operators(tmp_path, "inside")
    assert "aten::sin" in names
    assert "aten::tan" not in names
    info = capture(tmp_path, "inside").facts.profiler_info["collector"]
    assert info["limit"] == "the script starts torch.profiler, and both cannot record"

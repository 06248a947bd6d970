"""`import mindspore` under `stepscope run`: the real package, with our profiler. The package is a stand-in."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

import pytest

from stepscope.collect import messages
from stepscope.frameworks import mindspore as ours
from stepscope.frameworks.mindspore import redirect

FILES = {
    "__init__.py": "from mindspore import context, device_manager, profiler\nfrom mindspore.profiler import Profiler\n",
    "context.py": "def set_context(**options): return options\n",
    "device_manager.py": "def set_device(*words): return words\n",
    "_c_expression.py": "",
    "train.py": "class Callback: pass\n",
    "profiler/__init__.py": "class Profiler: pass\n",
}


@pytest.fixture
def compat(monkeypatch):
    """stepscope.compat, whose import would load the simulated NPU into the process of every other test."""
    without_device = ModuleType("stepscope.compat.after_torch")
    without_device.load = lambda: None
    monkeypatch.setitem(sys.modules, "stepscope.compat.after_torch", without_device)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    return importlib.import_module("stepscope.compat")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder with a package `mindspore`, and nothing of it imported."""
    for name, text in FILES.items():
        path = tmp_path / "mindspore" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] != "mindspore"}
    monkeypatch.setattr(redirect, "_stock", {})
    monkeypatch.setattr(messages, "_printed", set())
    monkeypatch.delenv("RANK", raising=False)
    yield tmp_path
    for name in [name for name in sys.modules if name not in kept]:
        del sys.modules[name]
    importlib.invalidate_caches()


def test_ours_comes_first_and_steps_aside(compat, installed, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [compat.MINDSPORE_FOLDER, str(installed), *sys.path])
    module = importlib.import_module("mindspore.profiler")
    root = importlib.import_module("mindspore")
    assert root.__file__ == str(installed / "mindspore" / "__init__.py")
    assert root.Profiler is module.Profiler is ours.Profiler
    assert compat.MINDSPORE_FOLDER not in sys.path
    assert "failed" not in "".join(capsys.readouterr())


def test_processes_find_ours_only_where_mindspore_is_installed(compat, installed, monkeypatch):
    environment = {"PYTHONPATH": "theirs"}
    compat.install_in_children(environment)
    assert compat.MINDSPORE_FOLDER not in environment["PYTHONPATH"].split(os.pathsep)
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
    compat.install_in_children(environment)
    compat.install_in_children(environment)
    assert environment["PYTHONPATH"].split(os.pathsep).count(compat.MINDSPORE_FOLDER) == 1

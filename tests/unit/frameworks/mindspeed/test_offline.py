"""`python -m mindspeed_mm.tools.profiler` (docs/formats/mindspeed-profiler.md 5)."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import stepscope
from stepscope.frameworks.mindspeed import offline

STAND_IN = Path(stepscope.__file__).parent / "compat" / "path" / "mindspeed_mm" / "tools" / "profiler.py"


def run(monkeypatch, *arguments, ok=(True,)):
    """The exit code of the module, and what it asks to be analysed."""
    asked = []
    monkeypatch.setattr(
        offline,
        "analyse",
        lambda *given: asked.append(given) or (None if ok is None else [SimpleNamespace(ok=good) for good in ok]),
    )
    monkeypatch.setattr(sys, "argv", ["profiler", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(STAND_IN), run_name="__main__")
    return ended.value.code, asked


def test_the_folder_that_is_given(monkeypatch):
    words = ["--profiler-path", "runs", "--max-process-number", "3", "--export-type", "text", "--export-type", "db"]
    assert run(monkeypatch, *words) == (0, [("runs", 3, ["text", "db"])])
    assert run(monkeypatch, "--profiler-path", "runs") == (0, [("runs", None, None)])


def test_the_folder_of_the_configuration(monkeypatch, tmp_path):
    (tmp_path / "tools.json").write_text(json.dumps({"profile": {"static_param": {"save_path": "kept"}}}))
    assert run(monkeypatch, "--mm-tool", str(tmp_path / "tools.json")) == (0, [("kept", None, None)])


def test_a_failure_is_not_silent(monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, "--profiler-path", "runs", ok=(True, False))[0] == 3
    assert run(monkeypatch, "--profiler-path", "nowhere", ok=None)[0] == 3
    assert run(monkeypatch, "--mm-tool", str(tmp_path / "absent.json")) == (3, [])
    assert "absent.json" in capsys.readouterr().err
    assert run(monkeypatch) == (2, [])
    assert "give --profiler-path DIR, or --mm-tool FILE" in capsys.readouterr().err

"""What MS_PROFILER_OPTIONS may say (docs/formats/mindspore.md 5); what it then records is tried with MindSpore itself."""

from __future__ import annotations

import json
import sys
import types

import pytest

from stepscope.collect import messages
from stepscope.frameworks.mindspore import ExportType, HostSystem, ProfilerActivity, ProfilerLevel, environment


@pytest.fixture
def made(monkeypatch):
    """The keywords of the profilers that were made."""
    found = []
    monkeypatch.setattr(environment, "profile", lambda **settings: found.append(settings))
    monkeypatch.setattr(environment.atexit, "register", lambda *_: None)
    monkeypatch.setattr(messages, "_printed", set())
    monkeypatch.delitem(sys.modules, "mindspore", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    return found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "", id="empty"),
        pytest.param('{"output_path": "x"}', "", id="not-started"),
        pytest.param('{"start": "true"}', "", id="started-by-a-text"),
        pytest.param("{start: true}", "is not valid JSON", id="no-json"),
        pytest.param("[true]", "is not a JSON object", id="no-object"),
    ],
)
def test_nothing_is_recorded(made, monkeypatch, capsys, text, said):
    monkeypatch.setenv(environment.VARIABLE, text)
    assert environment.start() is None
    assert made == []
    assert (said in capsys.readouterr().err) if said else (capsys.readouterr().err == "")


def test_words_become_members(made, monkeypatch, capsys):
    options = {
        "start": True, "output_path": "./there", "activities": ["CPU", "NPU"], "profiler_level": "Level2", "export_type": "db",
        "host_sys": ["cpu", "what"], "with_stack": True, "schedule": {},
    }  # fmt: skip
    monkeypatch.setenv(environment.VARIABLE, json.dumps(options))
    environment.start()
    (settings,) = made
    assert settings.pop("on_trace_ready").dir_name == "./there"
    assert settings == {
        "activities": [ProfilerActivity.CPU, ProfilerActivity.NPU], "profiler_level": ProfilerLevel.Level2,
        "export_type": ExportType.Db, "host_sys": [HostSystem.CPU, "what"], "with_stack": True,
    }  # fmt: skip
    assert "schedule cannot be set in this variable" in capsys.readouterr().err
    assert environment.VARIABLE not in environment.os.environ


def test_mindspore_was_first(made, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mindspore", types.ModuleType("mindspore"))
    monkeypatch.setenv(environment.VARIABLE, '{"start": true}')
    environment.start()
    assert made == []
    assert "import stepscope.mindspore before it" in capsys.readouterr().err

"""How the vendor's profiler is driven, against a stand-in that notes the public calls; no hardware was there to try it."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from stepscope.collect import active, messages
from stepscope.collect.tiers import ascend
from stepscope.profiler import ProfilerActivity, _ExperimentalConfig, profile, supported_activities


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """A module torch_npu that sees one device; what it was told."""
    told = []

    class Recorder:
        def __init__(self, **options):
            told.append(("profile", options))
            self.folder = Path(options["on_trace_ready"]) / "host_1_20260101000000000_ascend_pt"

        def start(self):
            told.append(("start", None))

        def stop(self):
            told.append(("stop", None))
            (self.folder / "FRAMEWORK").mkdir(parents=True)
            (self.folder / "FRAMEWORK" / "torch.op_range").write_bytes(b"theirs")
            (self.folder / "PROF_000001_20260101000000000_ABC" / "host").mkdir(parents=True)
            info = {"start_info": {"freq": 100}, "cann_version": "8.5", "config": {"theirs": True}}
            (self.folder / "profiler_info_0.json").write_text(json.dumps(info))

        @staticmethod
        def enable_profiler_in_child_thread(**options):
            told.append(("enable", options))

        @staticmethod
        def disable_profiler_in_child_thread():
            told.append(("disable", None))

    def handler(folder, analyse_flag):
        assert analyse_flag is False
        return folder

    def experimental_config(
        profiler_level=None, aic_metrics=None, l2_cache=None, mstx=None, data_simplification=None, export_type=None, op_attr=None
    ):
        return {name: value for name, value in locals().items() if value is not None}

    module = types.ModuleType("torch_npu")
    module.__spec__ = types.SimpleNamespace()
    module.npu = types.SimpleNamespace(is_available=lambda: True)
    module.profiler = types.SimpleNamespace(
        profile=Recorder,
        tensorboard_trace_handler=handler,
        _ExperimentalConfig=experimental_config,
        ExportType=types.SimpleNamespace(Text="text", Db="db"),
        ProfilerActivity=types.SimpleNamespace(CPU="their CPU", NPU="their NPU"),
    )
    monkeypatch.setitem(sys.modules, "torch_npu", module)
    monkeypatch.setattr(messages, "_printed", set())
    monkeypatch.setattr(active, "_running", None)
    monkeypatch.setenv("STEPSCOPE_MIN_FREE_BYTES", "0")
    monkeypatch.delenv("STEPSCOPE_COLLECTOR", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.chdir(tmp_path)
    return told


@pytest.mark.slow  # half a second and more
def test_the_vendor_records_raw_and_its_folders_become_ours(calls, tmp_path):
    assert ProfilerActivity.NPU in supported_activities()
    config = _ExperimentalConfig(profiler_level="Level1", l2_cache=True)
    with profile(on_trace_ready=lambda prof: None, experimental_config=config, record_shapes=True):
        profile.enable_profiler_in_child_thread(with_modules=True)
        profile.disable_profiler_in_child_thread()
        (own,) = tmp_path.glob("*_ascend_pt")
        (own / "FRAMEWORK").mkdir(exist_ok=True)
        (own / "FRAMEWORK" / "ours").touch()
    assert [name for name, _ in calls] == ["profile", "start", "enable", "disable", "stop"]
    options = calls[0][1]
    assert options["activities"] == ["their CPU", "their NPU"]
    assert options["record_shapes"] is True
    assert options["experimental_config"]["profiler_level"] == "Level1"
    assert options["experimental_config"]["aic_metrics"] == "ACL_AICORE_PIPE_UTILIZATION"
    assert options["experimental_config"]["l2_cache"] is True
    assert calls[2][1]["with_modules"] is True
    (capture,) = tmp_path.glob("*_ascend_pt")
    assert sorted(path.name for path in capture.iterdir()) == [
        "FRAMEWORK", "PROF_000001_20260101000000000_ABC", "profiler_info.json", "profiler_metadata.json",
    ]  # fmt: skip
    assert {"ours", "torch.op_range"} <= {path.name for path in (capture / "FRAMEWORK").iterdir()}
    info = json.loads((capture / "profiler_info.json").read_text())
    assert info["start_info"] == {"freq": 100}
    assert info["cann_version"] == "8.5"
    assert info["collector"]["tier"] == "ascend"
    assert "theirs" not in info["config"]


def test_settings_that_a_version_does_not_know_are_named(calls, capsys):
    config = _ExperimentalConfig(sys_io=True, msprof_tx=True, gc_detect_threshold=0.5)
    with profile(on_trace_ready=lambda prof: None, experimental_config=config):
        pass
    passed = calls[0][1]["experimental_config"]
    assert passed["mstx"] is True  # by its old name
    assert not {"sys_io", "gc_detect_threshold", "host_sys"} & set(passed)
    said = "".join(capsys.readouterr())
    assert said.count("does not know gc_detect_threshold, sys_io: not recorded; update torch_npu") == 1


def test_op_attr_is_recorded_whatever_is_exported(calls):
    config = _ExperimentalConfig(op_attr=True, export_type=["text", "db"])
    with profile(on_trace_ready=lambda prof: None, experimental_config=config):
        pass
    passed = calls[0][1]["experimental_config"]
    assert (passed["op_attr"], passed["export_type"]) == (True, "db")


def test_our_own_stand_in_is_not_taken_for_the_vendor(calls):
    sys.modules["torch_npu"].STEPSCOPE_STAND_IN = True
    assert ascend.vendor() is None
    assert not ascend.available()


def test_a_broken_installation_is_as_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert ascend.vendor() is None

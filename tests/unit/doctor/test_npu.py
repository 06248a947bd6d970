"""The self-test on the simulated NPU, with a stand-in for the vendor's tool."""

from __future__ import annotations

import shutil
import subprocess
from types import SimpleNamespace

import pytest
from npu_process import reason_without_device

from stepscope import analyser, cli
from stepscope.doctor import npu, vendor


def broken(capture):
    raise subprocess.CalledProcessError(3, "msprof", stderr="no toolkit")


@pytest.mark.slow  # a training process on the simulated NPU, and two analyses
def test_one_report_of_recording_analysis_and_comparison(tmp_path, monkeypatch, capsys):
    reason = reason_without_device()
    if reason:
        pytest.skip(f"no simulated NPU: {reason}")

    def their_tool(capture):
        (result,) = analyser.analyse(str(capture))
        assert result.ok
        details = capture / vendor.OUTPUT / "kernel_details.csv"
        lines = details.read_text().splitlines()
        details.write_text("\n".join([lines[0], lines[1].replace(",", "X,", 1), *lines[2:]]) + "\n")
        (capture / vendor.OUTPUT / "op_statistic.csv").unlink()
        return capture / vendor.OUTPUT

    monkeypatch.setattr(vendor, "find", lambda: ("their tool", their_tool))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor", "--npu", "--keep", "kept"]) == 1
    said = capsys.readouterr().out
    assert said.splitlines()[:2] == [
        "problem: kernel_details.csv differs from the vendor's file",
        "problem: op_statistic.csv differs from the vendor's file",
    ]
    (report,) = tmp_path.glob("stepscope-doctor-*.md")
    text = report.read_text()
    assert "torch_npu none: the simulated NPU" in text
    assert "| operator_details.csv |" in text
    assert "missing in the vendor's files" in text
    # The tool that fails is a problem, not the end; the kept capture is examined again without recording.
    (capture,) = (tmp_path / "kept" / "recorded").glob("*_ascend_pt")
    monkeypatch.setattr(npu, "_record", lambda folder, report: capture)
    monkeypatch.setattr(vendor, "find", lambda: ("msprof", broken))
    shutil.rmtree(tmp_path / "kept" / "ours")
    shutil.rmtree(tmp_path / "kept" / "vendor")
    found = npu.examine(tmp_path / "kept", lambda stage: None)
    assert len(found.problems) == 1
    assert found.problems[0].startswith("msprof failed: ")
    assert "no toolkit" in found.text()


def test_a_recording_that_fails_is_in_the_report(tmp_path, monkeypatch):
    monkeypatch.setattr(npu, "util", SimpleNamespace(find_spec=lambda name: name))
    monkeypatch.setattr(npu, "WORKLOAD", tmp_path / "nothing.py")
    monkeypatch.setattr(npu.subprocess, "run", lambda *words, **more: subprocess.CompletedProcess(words, 2, "", "no such file"))
    report = npu.examine(tmp_path, lambda stage: None)
    assert report.problems == ["recording failed with exit code 2"]
    assert "no such file" in report.text()


def test_without_torch_the_error_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(npu, "util", SimpleNamespace(find_spec=lambda name: None))
    assert cli.main(["doctor", "--npu"]) == 3
    said = capsys.readouterr()
    assert "cause: torch is not installed in this Python" in said.err
    assert "pip install 'stepscope[torch]'" in said.err
    assert list(tmp_path.iterdir()) == []

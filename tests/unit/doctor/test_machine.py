"""Whether a machine is ready: each line says what is wrong, and what to do."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from source_trees import SOURCE

from stepscope import environment
from stepscope.cli import main
from stepscope.doctor import machine


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("STEPSCOPE_")]:
        monkeypatch.delenv(name)


def lines(name: str) -> list[machine.Line]:
    return [line for line in machine.examine(trial=False) if line.name == name]


def test_a_good_machine_has_no_failed_line(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "--no-trial", "--lang", "en"]) == 0
    said = capsys.readouterr().out
    assert "polars" in said
    assert "FAIL" not in said
    assert main(["doctor", "--no-trial", "--lang", "zh"]) == 0
    assert "正常" in capsys.readouterr().out
    assert main(["doctor", "--no-trial", "--json"]) == 0
    assert {json.loads(line)["state"] for line in capsys.readouterr().out.splitlines()} <= {"ok", "warn"}


def test_a_missing_package_fails_with_its_installation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(machine, "_version", lambda name: None if name in ("polars", "torch", "mindspore") else "1")
    assert main(["doctor", "--no-trial", "--lang", "en"]) == 1
    said = capsys.readouterr().out
    assert "FAIL  packages: missing: polars\n      do this: pip install polars\n" in said
    assert "captures can be analysed, not recorded" in said


def test_a_variable_that_nothing_reads_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STEPSCOPE_PROFLIE", "steps=1")
    (line,) = lines("variables")
    assert line.fix == ("did you mean STEPSCOPE_PROFILE?", "是否应为 STEPSCOPE_PROFILE？")


def test_without_a_compiler_it_says_what_happens_instead(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    (line,) = lines("compiler")
    assert line.state == "warn"
    assert "g++" in line.fix[0]


def test_a_library_that_could_not_be_built_is_told_with_its_reason(tmp_path: Path):
    failed = tmp_path / "cache" / "stepscope" / "native" / "observer-123" / "failed.txt"
    failed.parent.mkdir(parents=True)
    failed.write_text("in file x\nfatal error: no such header")
    (line,) = lines("observer")
    assert line.text[0] == "could not be built: fatal error: no such header"
    assert str(failed.parent) in line.fix[0]


def test_caches_are_measured_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pack = tmp_path / "cache" / "stepscope" / "packs" / "1" / "run" / "file"
    pack.parent.mkdir(parents=True)
    pack.write_bytes(b"x" * 2_000_000)
    (line,) = lines("caches")
    assert line.text[0] == "packs 2.0 MB"
    assert main(["doctor", "--clean"]) == 0
    assert capsys.readouterr().out == "removed 2.0 MB\n"
    assert not pack.exists()
    assert main(["doctor", "--clean"]) == 0


def test_every_variable_that_is_read_is_declared():
    read = {name for path in SOURCE.rglob("*.py") for name in re.findall(r"\bSTEPSCOPE_[A-Z_]*[A-Z]\b", path.read_text())}
    known = {*environment.VARIABLES, *environment.INTERNAL}
    assert sorted(read - known) == []


@pytest.mark.slow  # a process with torch
def test_the_trial_records_two_steps():
    pytest.importorskip("torch")
    (line,) = machine._trial()
    assert line.state in ("ok", "warn"), line
    assert line.text[0].startswith("2 steps recorded and read back")

# SPDX-License-Identifier: Apache-2.0
"""`stepscope diff`: both sides, formats, the gate's exit codes and a series."""

from __future__ import annotations

import os
import random
from pathlib import Path

import orjson
import pytest
from json_schema import mistakes
from kineto_events import BASE_NS, event, kernel, written

import stepscope.diff
from stepscope.cli import main

SCHEMA = orjson.loads((Path(stepscope.diff.__file__).parent / "schema.json").read_bytes())


def trace(folder: Path, name: str, *, factor: float = 1.0, steps: int = 8, seed: int = 0, **header) -> Path:
    """A trace of steps with two operators of which one may be slower."""
    vary = random.Random(seed)
    base, events, number = BASE_NS / 1000, [], 1
    length = 1000.0 + 520.0 * (factor - 1)
    for step in range(steps):
        start = base + length * step
        events.append(event("user_annotation", f"ProfilerStep#{step}", start, length - 10))
        at = start + 20.0
        for op, busy in (("aten::mm", 500.0 * factor), ("aten::add", 200.0)):
            events.append(event("cpu_op", op, at, 9.0, args={"External id": number}))
            events.append(
                event("cuda_runtime", "cudaLaunchKernel", at + 2, 4.0, args={"correlation": number, "External id": number})
            )
            took = busy + vary.uniform(-2, 2)
            events.append(kernel(f"{op[6:]}_kernel", at + 8 if op == "aten::mm" else at + 8 + 520 * factor, took, number, number))
            at += 10.0
            number += 1
    folder.mkdir(parents=True, exist_ok=True)
    return written(folder, events, f"{name}.json", deviceProperties=[{"id": 0, "name": "GPU"}], **header)


@pytest.fixture
def sides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base, same = (trace(tmp_path / name, name, seed=seed) for seed, name in enumerate(("base", "same")))
    return base, same, trace(tmp_path / "slow", "slow", factor=1.3, seed=5)


def budget(text: str) -> str:
    Path("budget.toml").write_text(text)
    return "budget.toml"


def test_the_sides_may_be_given_in_two_ways(sides, capsys):
    base, _, slow = map(str, sides)
    assert main(["diff", base, slow]) == 0
    short = capsys.readouterr().out
    assert main(["diff", base, "--", slow, "--lang", "en"]) == 0
    assert capsys.readouterr().out == short
    assert "aten::mm" in short.splitlines()[0]
    assert main(["diff", base, base, base, "--", slow, slow, slow]) == 0
    assert "3 and 3 runs" in capsys.readouterr().out


@pytest.mark.parametrize("by", ["part", "module", "op", "kernel"])
def test_json(sides, capsys, by):
    base, _, slow = map(str, sides)
    assert main(["diff", base, "--", slow, "--format", "json", "--by", by]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert mistakes(found, SCHEMA) == []
    assert found["schema"] == "stepscope.diff/1"
    assert found["by"] == by
    assert found["delta_ms"] == pytest.approx(sum(row["delta_ms"] for row in found["rows"]), abs=1e-5)


@pytest.mark.parametrize(("form", "sign"), [("md", "| kernel |"), ("html", "<table>"), ("text", "sum")])
def test_other_forms(sides, form, sign):
    base, _, slow = map(str, sides)
    assert main(["diff", base, slow, "--format", form, "--out", "out.file"]) == 0
    assert sign in Path("out.file").read_text(encoding="utf-8")


def test_chinese(sides, capsys):
    base, _, slow = map(str, sides)
    assert main(["diff", base, slow, "--lang", "zh"]) == 0
    assert "有变化" in capsys.readouterr().out


def test_the_four_exit_codes(sides, capsys):
    base, same, slow = map(str, sides)
    limits = budget('step_ms = {max_increase = "3%"}')
    assert main(["diff", base, "--", same, "--gate", limits]) == 0
    assert "Within budget." in capsys.readouterr().out
    assert main(["diff", base, "--", slow, "--gate", limits]) == 1
    assert "Beyond the budget." in capsys.readouterr().out
    assert main(["diff", base, "--", slow, "--gate", budget("speed = 1\nmin_steps = 'x'")]) == 2
    told = capsys.readouterr().err
    assert "2 mistakes" in told
    assert "speed" in told
    assert "min_steps" in told
    other = trace(Path("few"), "few", steps=2)
    assert main(["diff", base, "--", str(other), "--gate", budget('step_ms = {max_increase = "3%"}')]) == 3
    assert "at least 3 are needed" in capsys.readouterr().out


def test_markdown_and_json_are_always_written_with_a_budget(sides):
    base, _, slow = map(str, sides)
    limits = budget('step_ms = {max_increase = "3%"}')
    assert main(["diff", base, "--", slow, "--gate", limits]) == 1
    assert orjson.loads(Path("stepscope-diff.json").read_bytes())["gate"]["exit"] == 1
    assert "aten::mm" in Path("stepscope-diff.md").read_text(encoding="utf-8")
    Path("review").mkdir()
    assert main(["diff", base, "--", slow, "--gate", limits, "--format", "html", "--out", "review/pr.html"]) == 1
    assert sorted(path.name for path in Path("review").iterdir()) == ["pr.html", "pr.json", "pr.md"]


def test_rules_of_the_verdict_in_a_budget(sides, capsys):
    base, same, _ = map(str, sides)
    assert main(["diff", base, "--", same, "--gate", budget('rule."host-dispatch" = {max_severity = "high"}')]) == 0
    assert main(["diff", base, "--", same, "--gate", budget('rule."gc-pause" = {max_severity = "none"}')]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("words", [[], ["one"], ["a", "b", "c"], ["--", "new"], ["--series", "x", "a", "b"]])
def test_wrong_usage(words, capsys):
    try:
        code = main(["diff", *words])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert "do this" in capsys.readouterr().err


def test_what_cannot_be_read(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["diff", str(tmp_path / "empty"), str(tmp_path / "none")]) == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.slow  # reads 22 runs, twice
def test_series(tmp_path, capsys):
    for number in range(22):
        trace(tmp_path / "runs" / f"night{number}", "t", steps=3, seed=number, factor=1.0 if number < 12 else 1.2)
    (tmp_path / "runs" / "notes.txt").write_text("not a run")
    # All have the same clock: names decide.
    assert main(["diff", "--series", str(tmp_path / "runs"), "--format", "json"]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert [point["name"] for point in found["points"]] == ["night12"]
    assert main(["diff", "--series", str(tmp_path / "runs"), "--lang", "en"]) == 0
    assert "from run 13 (night12) on" in capsys.readouterr().out
    few = tmp_path / "few"
    few.mkdir()
    for number in range(3):
        os.rename(tmp_path / "runs" / f"night{number}", few / f"night{number}")
    assert main(["diff", "--series", str(few)]) == 3
    assert main(["diff", "--series", str(tmp_path / "nothing")]) == 2

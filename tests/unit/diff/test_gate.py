# SPDX-License-Identifier: Apache-2.0
"""A budget and its four answers; a wrong budget lists all its mistakes at once."""

from __future__ import annotations

import pytest
from verdict_simulator import Loop

from stepscope.diff.engine import diff
from stepscope.diff.gate import gate, read_budget
from stepscope.errors import CaptureError
from stepscope.verdict import verdict

BASE = Loop(seed=1).run().tables()
SAME = Loop(seed=2).run().tables()
SLOWER = Loop(seed=3, slower={"MatMulV2": 1.2}).run().tables()
HEAVIER = Loop(seed=4, held=lambda step: 96 << 20).run().tables()


@pytest.fixture
def budget(tmp_path):
    def write(text: str):
        path = tmp_path / "budget.toml"
        path.write_text(text, encoding="utf-8")
        return read_budget(path)

    return write


@pytest.mark.parametrize(
    ("new", "text", "expected"),
    [
        pytest.param(SAME, 'step_ms = {max_increase = "3%"}', 0, id="within"),
        pytest.param(SLOWER, 'step_ms = {max_increase = "3%"}', 1, id="slower"),
        pytest.param(SLOWER, 'step_ms = {max_increase = "30%"}', 0, id="slower but allowed"),
        pytest.param(SLOWER, 'step_ms = {max_increase = "0.5 ms"}', 1, id="slower in ms"),
        pytest.param(SLOWER, "step_ms = {max_ms = 7}", 1, id="above a fixed limit"),
        pytest.param(SLOWER, "step_ms = {max_ms = 70}", 0, id="below a fixed limit"),
        pytest.param(SLOWER, '[part.computing]\nmax_increase = "1 ms"', 1, id="part"),
        pytest.param(SLOWER, '[part."idle.data"]\nmax_ms = 2', 0, id="part that does not occur"),
        pytest.param(SLOWER, "[part.idle.data]\nmax_ms = 2", 0, id="part without quotes"),
        pytest.param(HEAVIER, 'peak_memory = {max_increase = "5%"}', 1, id="memory"),
        pytest.param(SAME, 'peak_memory = {max_increase = "5%"}', 0, id="memory within"),
        pytest.param(HEAVIER, "peak_memory = {max_mib = 60}", 1, id="memory above a fixed limit"),
        pytest.param(SAME, 'step_ms = {max_increase = "3%"}\nmin_steps = 50', 3, id="too few steps for the budget"),
        pytest.param(SLOWER, 'step_ms = {max_increase = "3%"}\nignore = ["computing"]', 0, id="part left out"),
    ],
)
def test_answers(budget, new, text, expected):
    found = gate(diff([BASE], [new]), budget(text))
    assert found.exit == expected, found.as_dict()
    assert all(one.text(lang) for one in found.checks for lang in ("en", "zh"))


def test_noise_larger_than_the_limit_is_no_regression(budget):
    noisy = [Loop(seed=seed, jitter=0.6, layers=2, steps=6).run().tables() for seed in (11, 14)]
    found = diff(noisy[:1], noisy[1:])
    assert found.status == "within noise"
    percent = float(found.delta_ns / found.base_ns) * 100
    base, new = (noisy[:1], noisy[1:]) if percent > 0 else (noisy[1:], noisy[:1])
    answer = gate(diff(base, new), budget('step_ms = {max_increase = "0.01%"}'))
    assert answer.exit == 3
    assert "within noise" in answer.checks[0].text("en")


def test_another_workload_is_not_judged(budget):
    other = Loop(seed=5, dtypes="FLOAT;FLOAT", changing=True, slower={"MatMulV2": 2.0}).run().tables()
    other = other.replace(meta=other.facts.replace(level="Level2").table())
    found = diff([BASE], [other])
    text = 'step_ms = {max_increase = "3%"}'
    answer = gate(found, budget(text))
    assert answer.exit == 3
    assert "profiler level" in answer.checks[0].text("en")
    assert gate(found, budget(f'{text}\nignore = ["level", "shapes", "dtypes"]')).exit == 1


def test_two_steps_cannot_tell(budget):
    base, new = (Loop(seed=1, steps=2, slower={"Add": factor}).run().tables() for factor in (1.0, 2.0))
    assert gate(diff([base], [new]), budget('step_ms = {max_increase = "3%"}\nmin_steps = 1')).exit == 3


def test_memory_that_was_not_recorded(budget):
    base = BASE.replace(memory_events=BASE.memory_events.clear())
    assert gate(diff([base], [SAME]), budget('peak_memory = {max_increase = "5%"}')).exit == 3


def test_severity_of_a_rule(budget):
    waits = Loop(seed=1, host=60.0, at_layer=lambda machine, layer: machine.wait()).run().tables()
    findings = verdict([waits]).findings
    severity = next(one.severity for one in findings if one.rule == "sync-stall")
    found = diff([waits], [waits])
    assert gate(found, budget(f'rule."sync-stall" = {{max_severity = "{severity}"}}'), findings).exit == 0
    assert gate(found, budget('rule."sync-stall" = {max_severity = "none"}'), findings).exit == 1
    assert gate(found, budget('rule."gc-pause" = {max_severity = "none"}'), findings).exit == 0


def test_all_mistakes_are_listed_at_once(budget):
    text = """
        step_ms = {max_increase = "fast", max_percent = 3}
        peak_memory = 5
        ignore = ["colour"]
        min_steps = 0
        speed = 1
        [part."idle.coffee"]
        max_ms = 2
        [part.computing]
        max_ms = -1
        [rule.sync-stall]
        max_severity = "awful"
        [rule.no-such-rule]
        max_severity = "low"
    """
    with pytest.raises(CaptureError) as problem:
        budget(text)
    told = str(problem.value)
    assert "10 mistakes" in told
    places = "speed idle.coffee part.computing.max_ms no-such-rule awful max_percent 'fast' peak_memory min_steps colour"
    for word in places.split():
        assert word in told


@pytest.mark.parametrize("text", ["", "step_ms = {}", "this is not TOML", "part = 3", "step_ms = {max_increase = 3}"])
def test_budgets_that_mean_nothing(budget, text):
    with pytest.raises(CaptureError):
        budget(text)


def test_a_budget_that_is_not_there(tmp_path):
    with pytest.raises(CaptureError, match="cannot be read"):
        read_budget(tmp_path / "none.toml")

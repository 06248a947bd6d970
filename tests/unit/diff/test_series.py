# SPDX-License-Identifier: Apache-2.0
"""Change points over runs."""

from __future__ import annotations

import numpy as np
import orjson
from verdict_simulator import Loop

from stepscope.diff.engine import Side, record
from stepscope.diff.series import LEAST_RUNS, Run, change_points, run_of, run_of_verdict, series
from stepscope.verdict import verdict


def runs(values, part="computing"):
    return [Run(f"run{number}", {part: float(value), "idle.data": 10.0}) for number, value in enumerate(values)]


def noise(count, seed=0, size=1.0):
    return np.random.default_rng(seed).normal(0, size, count)


def test_a_step_in_the_middle():
    found = series(runs(np.r_[np.full(15, 100.0), np.full(12, 110.0)] + noise(27)))
    assert [point.place for point in found.points] == [15]
    point = found.points[0]
    assert point.name == "run15"
    assert 108 < point.after_ns - 10 < 112
    assert abs(sum(point.parts.values()) - (point.after_ns - point.before_ns)) < 1e-6
    assert max(point.parts, key=lambda name: abs(point.parts[name])) == "computing"


def test_two_steps():
    values = np.r_[np.full(12, 100.0), np.full(12, 120.0), np.full(12, 105.0)] + noise(36, 1)
    assert [place for place, _ in change_points(values)] == [12, 24]


def test_equal_runs_have_none():
    for seed in range(20):
        assert change_points(100 + noise(30, seed, 2.0)) == []


def test_one_outlier_is_no_new_level():
    values = 100 + noise(30, 5)
    values[17] = 160
    assert change_points(values) == []


def test_too_few_runs():
    found = series(runs([100.0] * 10 + [200.0] * 9))
    assert (found.enough, found.points) == (False, ())
    assert str(LEAST_RUNS) in next(found.text("en"))


def test_order_is_natural_or_by_time():
    named = series([Run(f"n{number}", {"computing": 1.0}) for number in (10, 9, 1)])
    assert [run.name for run in named.runs] == ["n1", "n9", "n10"]
    timed = series([Run("a", {}, 5), Run("b", {}, 2)])
    assert [run.name for run in timed.runs] == ["b", "a"]


def test_a_capture_and_its_verdict_are_the_same_run(tmp_path):
    tables = Loop(steps=5).run().tables()
    path = tmp_path / "one.json"
    path.write_bytes(orjson.dumps(verdict(tables).as_dict()))
    kept = run_of_verdict(path)
    direct = run_of("one", Side([record(tables)]), None)
    assert abs(kept.step_ns - direct.step_ns) < 1.0
    (tmp_path / "other.json").write_text("{}")
    assert run_of_verdict(tmp_path / "other.json") is None


def test_words_in_both_languages():
    found = series(runs(np.r_[np.full(15, 100e6), np.full(12, 110e6)] + noise(27, 0, 1e6)))
    for lang in ("en", "zh"):
        told = "\n".join(found.text(lang))
        assert "run15" in told
        assert "+9." in told or "+10." in told
    assert orjson.dumps(found.as_dict())

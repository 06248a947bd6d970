"""Suspects of which only small files were read are read in full, with a few of their peers, and so is their cause."""

from __future__ import annotations

import json
import shutil

import pytest

from stepscope.capture import Capture
from stepscope.cli import main
from stepscope.cluster.read import reading
from stepscope.cluster.run import analyse_run, load
from stepscope.cluster.simulate import Fault, Plan, record
from stepscope.cluster.simulate.captures import write_captures
from stepscope.export.text_files import write_text
from stepscope.formats import registry

PLAN = Plan("ddp", dp=12, micro=2, layers=1, per_host=4)


def _run(folder, fault):
    """Text captures with a timeline."""
    write_captures(folder / "db", record(PLAN, 3, 3, fault), "db")
    for capture in (folder / "db").iterdir():
        target = folder / "run" / capture.name
        shutil.copytree(capture, target, ignore=shutil.ignore_patterns("*.db"))
        tables = Capture(registry.claim(capture)).load(keep=False, parallel=False)
        write_text(tables, target / "ASCEND_PROFILER_OUTPUT")
    return folder / "run"


@pytest.fixture(scope="module")
def slow_loading(tmp_path_factory):
    return _run(tmp_path_factory.mktemp("data"), Fault("data_loading", 5, ns=9e6))


@pytest.fixture
def many(monkeypatch):
    monkeypatch.setattr(reading, "FEW", 4)


@pytest.mark.usefixtures("many")
def test_the_cause_that_small_files_do_not_tell(slow_loading, capsys):
    (alone,) = analyse_run(load([slow_loading], options=reading.Options(cache=False))).findings
    assert (alone.ranks, alone.cause) == ([5], "other")
    assert main(["cluster", str(slow_loading), "--no-cache", "--workers", "1", "--json", "-"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["ranks"], found["cause"]) == ([5], "data_loading")
    assert found["explained"] > 0.9
    assert found["cost_ms"] == round(alone.cost_ns / 1e6, 6)
    assert found["evidence"][-1] == {"what": "second look", "ranks": [3, 4, 5, 6, 7]}


@pytest.mark.usefixtures("many")
def test_few_ranks_are_read_in_full(slow_loading):
    loaded = load([slow_loading], options=reading.Options(cache=False))
    asked = []

    def read(paths):
        asked.extend(paths)
        return reading.read_digests(paths, reading.Options(cache=False))

    analyse_run(loaded, read=read)
    assert len(loaded.shallow) == 12
    assert 2 <= len(asked) <= 8
    assert loaded.captures[5][0] in asked


@pytest.mark.usefixtures("many")
def test_a_lower_frequency_and_allocations(tmp_path):
    for name, fault, shallow, full in (
        ("clock", Fault("frequency", 5, 1.4), "compute_all_kernels", "frequency"),
        ("memory", Fault("allocation", 5, ns=9e6), "other", "allocation"),
    ):
        root = _run(tmp_path / name, fault)
        loaded = load([root], options=reading.Options(cache=False))
        assert [one.cause for one in analyse_run(loaded).findings] == [shallow]
        closer = analyse_run(loaded, read=lambda paths: reading.read_digests(paths, reading.Options(cache=False)))
        assert [(one.ranks, one.cause) for one in closer.findings] == [([5], full)]


@pytest.mark.usefixtures("many")
def test_captures_that_cannot_be_read_in_full_change_nothing(slow_loading):
    loaded = load([slow_loading], options=reading.Options(cache=False))
    broken = analyse_run(loaded, read=lambda paths: [reading.Outcome(path, None, error="torn") for path in paths])
    assert [one.cause for one in broken.findings] == ["other"]

# SPDX-License-Identifier: Apache-2.0
"""Findings: ranked, folded, merged over ranks; and captures of which little can be said."""

from __future__ import annotations

import orjson
import polars as pl
import pytest
from verdict_simulator import Loop, Machine

import stepscope
from stepscope.errors import CaptureError
from stepscope.tables import ALL_TABLES, Facts, Tables, lost
from stepscope.tables.issues import RECORDING_UNFINISHED
from stepscope.verdict import verdict, what_if
from stepscope.verdict.settings import chip_of, limits, severity_of
from stepscope.verdict.text import lines, markdown, percentages


@pytest.fixture(scope="module")
def waiting() -> Tables:
    """A loop that waits for the device in every layer."""
    return Loop(seed=1, host=60.0, at_layer=lambda machine, layer: machine.wait()).run().tables()


@pytest.fixture(scope="module")
def loading() -> Tables:
    def load(machine, step):
        start, end = machine.spend(20_000)
        machine.add("ops", start, end, pid=1, tid=1, name="enumerate(DataLoader)#x.__next__", scope=7)

    return Loop(seed=2, at_step=load).run().tables()


def rank_of(tables: Tables, rank: int) -> Tables:
    return tables.replace(meta=tables.facts.replace(rank=rank).table())


def test_the_answer_names_the_cause_and_the_parts_sum_up(loading):
    found = verdict(loading)
    assert found.findings[0].rule == "data-wait"
    assert found.findings[0].severity == "high"
    first = next(lines(found))
    assert first.startswith("Mean step ")
    assert "waiting for data" in first
    (rank,) = found.ranks
    assert sum(value for part, value in rank.partition.items() if part != "total") == pytest.approx(rank.partition["total"])
    for row in found.partition:
        assert sum(value for part, value in row.items() if part not in ("rank", "step", "total")) == pytest.approx(row["total"])


def test_shares_are_of_the_step_that_stands_beside_them(waiting):
    """On a simulated device too, where what is told is weighed without the load of the machine."""
    queued = Loop(seed=1, host=60.0, at_layer=lambda machine, layer: machine.wait()).run(Machine(seed=1, latency=80.0)).tables()
    simulated = queued.replace(meta=queued.facts.replace(modelled=("counters",)).table())
    for tables in (waiting, simulated, simulated.replace(meta=simulated.facts.replace(rank=1).table())):
        found = verdict(tables)
        assert found.findings[0].saved_ns > 0
        assert [one.share for one in found.findings] == pytest.approx([one.saved_ns / found.step_ns for one in found.findings])
    (rank,) = found.ranks
    assert rank.partition["idle.queued"] > 0.1 * found.step_ns


def test_shares_of_several_ranks_are_of_the_one_step_that_is_told(loading, waiting):
    """A rank whose own steps are shorter has no base of its own: 4.1 of 49.2 ms is 8.3 % whichever rank it is on."""
    slow, fast = verdict(loading), verdict(waiting)
    assert slow.step_ns > 1.1 * fast.step_ns
    found = verdict([rank_of(loading, 0), rank_of(waiting, 1)])
    assert found.step_ns == slow.step_ns
    assert {rank for one in found.findings for rank in one.ranks} == {0, 1}
    every = [other for one in found.findings for other in (one, *one.also)]
    assert [one.share for one in every] == pytest.approx([one.saved_ns / found.step_ns for one in every])
    for one in every:
        if one.saved_ns and one.severity != "info":
            assert one.severity == (severity_of(one.share, limits()) or "low")


def test_the_answer_says_of_which_step_it_is(loading, waiting):
    """The mean where there are several; of several ranks that of the slowest, which heads the bar."""
    told = list(lines(verdict([rank_of(loading, 3), rank_of(waiting, 7)])))
    assert told[0].startswith("Mean step ")
    assert any(line.startswith("rank 3, slowest: ") for line in told)
    one = loading.replace(steps=loading.steps[2:3])
    assert next(lines(verdict(one))).startswith("Step ")


def test_findings_are_ranked_by_what_they_save_weighted_by_confidence(waiting):
    found = verdict(waiting).findings
    weights = [finding.weight for finding in found if finding.severity != "info"]
    assert weights == sorted(weights, reverse=True)


def test_json_keeps_its_promises(loading):
    answered = orjson.loads(orjson.dumps(verdict(loading).as_dict()))
    assert answered["schema"] == "stepscope.verdict/1"
    assert answered["complete"] is True
    (rank,) = answered["ranks"]
    assert rank["partition"]["total"] == pytest.approx(
        sum(ms for part, ms in rank["partition"].items() if part != "total"), abs=1e-4
    )
    first = answered["findings"][0]
    assert first["id"] == "data-wait:1"
    assert set(first["title"]) == {"en", "zh"}
    assert first["saved_ms"] > 0
    assert first["evidence"][0]["rows"]


def test_ranks_are_merged_worst_first(loading, waiting):
    found = verdict([rank_of(loading, 0), rank_of(waiting, 1), rank_of(loading, 2)])
    data = next(finding for finding in found.findings if finding.rule == "data-wait")
    assert data.ranks == (0, 2)
    assert [rank.rank for rank in found.ranks] == [0, 1, 2]


def test_all_fixes_together_save_no_less_than_one(loading, waiting):
    found = verdict([rank_of(loading, 0), rank_of(waiting, 1)])
    assert found.together_ns >= max(finding.saved_ns for finding in found.findings if finding.how == "replay") - 1


def test_the_end_of_a_recording_is_not_a_collection(loading):
    late = loading.facts.replace(gc_threshold=None)
    last = int(loading.steps["end_ns"].max())
    steps = loading.steps.with_columns(
        end_ns=pl.when(pl.col("end_ns") == last).then(pl.col("end_ns") + 400_000_000).otherwise(pl.col("end_ns"))
    )
    found = verdict(loading.replace(meta=late.table(), steps=steps))
    assert "conjectured-gc" not in {finding.rule for finding in found.findings}


def test_rules_can_be_chosen(waiting):
    assert {finding.rule for finding in verdict(waiting, rules=["sync-stall"]).findings} == {"sync-stall"}


def test_the_package_is_callable(loading):
    assert stepscope.verdict(loading).findings[0].rule == "data-wait"
    assert stepscope.verdict([loading, loading]).ranks[1].steps == stepscope.verdict(loading).ranks[0].steps


@pytest.mark.parametrize(
    ("drop", "lack"),
    [
        pytest.param(["kernels"], "device", id="no device"),
        pytest.param(["steps"], "steps", id="no steps"),
        pytest.param(["kernels", "ops", "api_calls", "steps", "memory_events"], "device", id="nothing"),
    ],
)
def test_what_a_capture_cannot_tell_is_said(loading, drop, lack):
    made = loading.replace(**{name: ALL_TABLES[name].empty() for name in drop})
    found = verdict(made)
    assert lack in {one.lack for one in found.ranks[0].cannot_tell}
    assert list(lines(found))
    assert list(markdown(found))


def test_without_launches_nothing_is_replayed(loading):
    kernels = loading.kernels.with_columns(launch_ns=pl.lit(None, pl.Int64), launch_tid=pl.lit(None, pl.Int64))
    found = verdict(loading.replace(kernels=kernels))
    assert "launches" in {one.lack for one in found.ranks[0].cannot_tell}
    assert "data-wait" not in {finding.rule for finding in found.findings}


def test_a_recording_that_did_not_end_is_the_first_line(loading):
    made = loading.with_quality(lost(RECORDING_UNFINISHED, "capture", 1))
    found = verdict(made)
    assert found.complete is False
    assert next(lines(found)).startswith("The recording did not end")
    assert found.as_dict()["complete"] is False


def test_lost_records_lower_confidence(loading):
    issue = next(one for one in _losses())
    sure, unsure = verdict(loading), verdict(loading.with_quality(lost(issue, "file", 3)))
    assert sure.findings[0].confidence == "high"
    assert unsure.findings[0].confidence == "medium"


def _losses():
    from stepscope.tables.issues import REGISTER

    return (issue for issue in REGISTER.values() if issue.severity == "loss" and issue != RECORDING_UNFINISHED)


def test_modelled_counters_never_give_a_finding(loading):
    metrics = pl.DataFrame({"kernel": list(range(50)), "aic_mac_ratio": [0.1] * 50})
    made = loading.replace(kernel_metrics=ALL_TABLES["kernel_metrics"].conform(metrics))
    modelled = made.replace(meta=made.facts.replace(modelled=("kernel_metrics",)).table())
    assert not {"no-bound-pipe", "bound", "mfu"} & {finding.rule for finding in verdict(modelled).findings}


def test_percentages_sum_to_a_hundred():
    assert percentages({"a": 1, "b": 1, "c": 1}) == {"a": 34, "b": 33, "c": 33}
    assert percentages({"a": 0}) == {}


def test_what_if(loading):
    without = what_if(loading, without=["data"])
    assert without.then_ms < without.now_ms - 10
    longer = what_if(loading, scale=["kernel~MatMul=2"])
    assert longer.then_ms > longer.now_ms


@pytest.mark.parametrize(
    ("scale", "without", "message"),
    [
        pytest.param(["kernel~MatMul"], [], "is not a change", id="no factor"),
        pytest.param(["kernel~MatMul=-1"], [], "is not a change", id="negative"),
        pytest.param(["kernel~(=1"], [], "is not a regular expression", id="pattern"),
        pytest.param(["kernel~NoSuch=1"], [], "no kernel matches", id="no match"),
        pytest.param([], ["coffee"], "coffee", id="layer"),
    ],
)
def test_what_if_refuses(loading, scale, without, message):
    with pytest.raises(CaptureError, match=message):
        what_if(loading, scale=scale, without=without)


def test_limits_of_a_user(tmp_path):
    config = tmp_path / "limits.toml"
    config.write_text("[severity]\nlow = 0.5\n")
    assert limits(config)["severity"]["low"] == 0.5
    assert limits(config)["severity"]["high"] == limits()["severity"]["high"]
    config.write_text("[severity]\nlow = true\n")
    with pytest.raises(CaptureError, match=r"not limits"):
        limits(config)
    config.write_text("[severity]\nlowest = 1\n[nothing]\na = 1\n[leak]\n")
    with pytest.raises(CaptureError) as error:
        limits(config)
    assert "severity has no limit lowest" in str(error.value)
    assert "no rule nothing" in str(error.value)


@pytest.mark.parametrize(("share", "severity"), [(0.15, "high"), (0.149, "medium"), (0.05, "medium"), (0.02, "low"), (0.019, "")])
def test_severity_is_by_the_share_of_the_step(share, severity):
    assert severity_of(share, limits()) == severity
    assert severity_of(share, {"severity": {"high": 0.5, "medium": 0.4, "low": 0.3}}) == ""


def test_chips_by_name():
    assert chip_of("Ascend910B4") is not None
    assert chip_of("NVIDIA H100 80GB HBM3").cube_cores == 132
    assert chip_of("Ascend 950PR") is None
    assert chip_of("") is None


def test_what_a_capture_says_of_its_device_goes_before_the_table():
    chip = chip_of("Ascend910B", {"ai_core_num": 20, "aiv_num": 40, "aic_frequency": "1650"})
    assert (chip.cube_cores, chip.vector_cores) == (20, 40)
    assert chip.peak["float16"] == pytest.approx(20 * 8192 * 1650e6 / 1e12)
    assert chip_of("NVIDIA H100 80GB HBM3", {"numSms": 114}).cube_cores == 114
    assert chip_of("of next year", {"numSms": 200}).cube_cores == 200
    assert chip_of("of next year", {"numSms": "many"}) is None
    assert chip_of("of next year", ["odd"]) is None


def test_an_empty_capture_says_so():
    assert next(lines(verdict(Tables({"meta": Facts().table()})))) == "nothing was recorded"

"""`stepscope cluster` on simulated captures, digests and bad input."""

from __future__ import annotations

import json

import pytest

from stepscope.cli import main
from stepscope.cluster.simulate import Fault, Plan, record
from stepscope.cluster.simulate.captures import write_captures

PLAN = Plan("ddp", dp=4, micro=2, layers=1, per_host=2)


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_captures(folder, record(PLAN, 4, 3, Fault("data_loading", 2, ns=9e6)), "kineto")
    return folder


def run(capsys, *words):
    code = main(["cluster", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.slow  # half a second and more
def test_names_the_slow_rank_in_few_lines(captures, capsys):
    code, out, _ = run(capsys, captures, "--no-cache", "--workers", 1, "--lang", "en")
    assert code == 0
    assert len(out.splitlines()) <= 25
    assert "rank 2 is slow" in out
    assert "it waits for data" in out
    assert not list(captures.glob(".*"))


def test_speaks_chinese(captures, capsys):
    assert "rank 2 慢" in run(capsys, captures, "--no-cache", "--workers", 1, "--lang", "zh")[1]


def test_json_from_captures_and_from_digests_is_the_same(captures, capsys, tmp_path):
    first = run(capsys, captures, "--no-cache", "--workers", 1, "--json", "-", "--digests", tmp_path / "d")[1]
    found = json.loads(first)
    assert found["schema"] == "stepscope.cluster/1"
    assert found["run"]["ranks"] == [0, 1, 2, 3]
    assert [(one["kind"], one["ranks"], one["cause"]) for one in found["findings"]] == [("slow_rank", [2], "data_loading")]
    assert first == run(capsys, tmp_path / "d", "--json", "-")[1]


@pytest.mark.slow  # half a second and more
def test_fails_on_request(captures, capsys):
    words = (captures, "--no-cache", "--workers", 1, "--fail-on")
    assert run(capsys, *words, "slow-rank:2%")[0] == 3
    assert run(capsys, *words, "slow-rank:99%")[0] == 0
    assert run(capsys, *words, "slow-link:0%")[0] == 0


@pytest.mark.slow  # starts processes
def test_other_processes_give_the_same_bytes(captures, capsys):
    alone = run(capsys, captures, "--no-cache", "--workers", 1, "--json", "-")[1]
    assert run(capsys, captures, "--no-cache", "--workers", 3, "--json", "-")[1] == alone


@pytest.mark.slow  # half a second and more
def test_the_digest_is_kept_and_made_again_when_the_capture_changes(tmp_path, capsys):
    write_captures(tmp_path, record(PLAN, 3, 3), "kineto")
    first = run(capsys, tmp_path, "--workers", 1, "--json", "-")[1]
    kept = sorted(tmp_path.glob(".rank-*.digest-v4.arrow"))
    assert len(kept) == 4
    kept[0].write_bytes(kept[0].read_bytes()[:100])
    assert run(capsys, tmp_path, "--workers", 1, "--json", "-")[1] == first
    write_captures(tmp_path, record(PLAN, 3, 3, Fault("frequency", 1, 1.5)), "kineto")
    assert json.loads(run(capsys, tmp_path, "--workers", 1, "--json", "-")[1])["findings"][0]["ranks"] == [1]


def test_missing_torn_and_duplicate_captures_are_problems(captures, capsys, tmp_path):
    for path in captures.glob("rank-*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "rank-3.pt.trace.json").unlink()
    (tmp_path / "rank-1.pt.trace.json").write_text("{")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "rank-2.pt.trace.json").write_bytes((tmp_path / "rank-2.pt.trace.json").read_bytes())
    found = json.loads(run(capsys, tmp_path, "--no-cache", "--workers", 1, "--json", "-")[1])
    assert found["run"]["missing"] == [1, 3]
    assert {"failed", "duplicate", "missing_ranks"} <= {one["kind"] for one in found["problems"]}
    assert found["run"]["ranks"] == [0, 2]


@pytest.mark.parametrize("content", [{}, {"notes.txt": "hello"}], ids=["empty", "no-capture"])
def test_nothing_usable_is_exit_code_2(content, tmp_path, capsys):
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    code, _, err = run(capsys, tmp_path)
    assert code == 2
    assert "no capture here" in err
    assert "do this" in err


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("healthy")
    write_captures(folder, record(PLAN, 4, 3), "kineto")
    return folder


def test_a_baseline_by_part_by_rank_and_by_finding(captures, healthy, capsys):
    words = (captures, "--no-cache", "--workers", 1, "--baseline", healthy)
    found = json.loads(run(capsys, *words, "--json", "-")[1])["baseline"]
    assert found["after"] - found["before"] == pytest.approx(9, rel=0.1)
    parts = {part: figures["change"] for part, figures in found["parts"].items()}
    # Nobody computes longer. The slow rank has nothing to do for 9 ms more, the three others wait for it.
    assert parts["computing"] == pytest.approx(0, abs=0.2)
    assert parts["free"] == pytest.approx(9 / 4, rel=0.15)
    assert parts["communication"] == pytest.approx(9 * 3 / 4, rel=0.15)
    assert parts["computing"] + parts["free"] + parts["communication"] == pytest.approx(found["after"] - found["before"], rel=0.1)
    first, *others = found["ranks"]
    assert (first["rank"], first["own_change"]) == (2, pytest.approx(9, rel=0.1))
    assert all(abs(other["own_change"]) < 0.5 for other in others)
    assert [(one["state"], one["ranks"], one["cost_ms_before"]) for one in found["findings"]] == [("new", [2], None)]
    _, out, _ = run(capsys, *words, "--lang", "en")
    assert "own time changed most on rank 2 (+9" in out
    assert "new: rank 2 is slow" in out
    assert len(out.splitlines()) <= 25


def test_a_finding_that_is_gone(captures, healthy, capsys):
    words = (healthy, "--no-cache", "--workers", 1, "--baseline", captures)
    found = json.loads(run(capsys, *words, "--json", "-")[1])["baseline"]
    assert [(one["state"], one["ranks"], one["cost_ms_after"]) for one in found["findings"]] == [("gone", [2], None)]
    assert "已消失：rank 2 慢" in run(capsys, *words, "--lang", "zh")[1]
    same = json.loads(run(capsys, *words[:-1], healthy, "--json", "-")[1])["baseline"]
    assert (same["change"], same["findings"]) == (0, [])
    assert all(figures["change"] == 0 for figures in same["parts"].values())


@pytest.mark.slow  # starts a process
def test_a_baseline_while_another_process_reads_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("stepscope.cluster.read.text_ahead.MANY", 2)
    write_captures(tmp_path / "run", record(PLAN, 2, 3), "text")
    words = (tmp_path / "run", "--baseline", tmp_path / "run", "--workers", 2, "--lang", "en")
    code, out, err = run(capsys, *words, "--out", tmp_path / "both")
    assert (code, err) == (0, "")
    assert "(+0.0 %)" in out
    assert (tmp_path / "both" / "cluster_analysis_output" / "cluster_step_trace_time.csv").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--step", "99"), "choose from 0–3"),
        (("--rank", "77"), "choose from 0–3"),
        (("--json", "{}/no/run.json"), "the results cannot be written"),
        (("--digests", "{}/file/digests"), "the results cannot be written"),
    ],
    ids=["step", "rank", "json", "digests"],
)
def test_what_cannot_be_chosen_or_written(words, said, captures, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, out, err = run(capsys, captures, "--no-cache", "--workers", 1, *(word.format(tmp_path) for word in words))
    assert (code, out) == (2, "")
    assert said in err
    assert "do this" in err


def test_no_workers(captures, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["cluster", str(captures), "--workers", "0"])
    assert ended.value.code == 2
    assert "not a positive whole number" in capsys.readouterr().err

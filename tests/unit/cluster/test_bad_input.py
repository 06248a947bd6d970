"""What is odd about the captures of a run is one line of its problems each; the rest is complete."""

from __future__ import annotations

import csv
import json
import shutil
import statistics
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest

from stepscope.cli import main
from stepscope.cluster.analyse import analyse
from stepscope.cluster.digest import Digests
from stepscope.cluster.finding import Problem
from stepscope.cluster.read.lean import read_lean
from stepscope.cluster.read.store import write_cluster
from stepscope.cluster.simulate import Plan, digests_of, record
from stepscope.cluster.simulate.captures import write_captures
from stepscope.cluster.words import problem_text

PLAN = Plan("ddp", dp=4, micro=2, layers=1, per_host=2)


@pytest.fixture(scope="module")
def recording():
    return record(PLAN, 3, 3)


@pytest.fixture(scope="module")
def run(tmp_path_factory, recording):
    root = tmp_path_factory.mktemp("run")
    write_captures(root, recording, "text")
    return root


@pytest.fixture
def root(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def analysed(capsys, *words):
    capsys.readouterr()
    assert main(["cluster", *map(str, words), "--workers", "1", "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def kinds(found):
    return {one["kind"]: one for one in found["problems"]}


def _rewrite(capture: Path, change) -> None:
    for path in capture.glob("ASCEND_PROFILER_OUTPUT/*"):
        path.write_text(change(path.name, path.read_text()))


def test_nothing_is_wrong_with_a_good_run(run, capsys):
    found = analysed(capsys, run)
    assert found["problems"] == []
    assert found["run"]["ranks"] == [0, 1, 2, 3]
    assert not list(run.rglob("digest-*"))


def test_mixed_forms_are_one_run(root, recording, tmp_path, capsys):
    write_captures(tmp_path / "db", recording, "db")
    replaced = sorted(root.iterdir())[1]
    shutil.rmtree(replaced)
    shutil.copytree(tmp_path / "db" / replaced.name, replaced)
    found = analysed(capsys, root, "--no-cache")
    assert found["run"]["ranks"] == [0, 1, 2, 3]
    assert found["run"]["missing"] == []
    assert "several_runs" not in kinds(found)


def test_a_stray_capture_of_a_gpu_is_another_run(root, recording, tmp_path, capsys):
    write_captures(tmp_path / "gpu", recording, "kineto", missing=(0, 1, 3))
    shutil.copy(tmp_path / "gpu" / "rank-2.pt.trace.json", root)
    found = analysed(capsys, root, "--no-cache")
    assert found["run"]["ranks"] == [0, 1, 2, 3]
    assert kinds(found)["several_runs"]["count"] == 2


def test_of_two_runs_the_newest_is_shown(root, tmp_path, capsys):
    for capture in sorted(root.iterdir())[:3]:
        later = root / "later" / capture.name
        shutil.copytree(capture, later)
        _rewrite(later, lambda name, text: text.replace("1764246", "1764256"))
    found = analysed(capsys, root)
    assert found["run"]["ranks"] == [0, 1, 2]
    assert kinds(found)["several_runs"]["chosen"] == 2
    assert kinds(found)["partial_calls"]["count"] > 0  # its groups have the members that the other run's have
    assert analysed(capsys, root, "--run", 1)["run"]["ranks"] == [0, 1, 2, 3]
    assert main(["cluster", str(root), "--run", "3"]) == 2
    assert "choose a run from 1 to 2" in capsys.readouterr().err
    both = analysed(capsys, root, "--run", "all")
    assert [one["run"]["ranks"] for one in both["runs"]] == [[0, 1, 2, 3], [0, 1, 2]]
    assert main(["cluster", str(root), "--run", "all", "--lang", "en"]) == 0
    first, *_, second, step, finding = capsys.readouterr().out.splitlines()
    assert first == "run 1: 4 of 4 ranks on 2 hosts, 3 steps"
    assert (second, step[:14], finding[:3]) == ("run 2: 3 of 4 ranks on 2 hosts, 3 steps", "   median step", "   ")
    assert main(["cluster", str(root), "--run", "all", "--out", str(tmp_path / "out")]) == 2
    assert "choose one with --run N" in capsys.readouterr().err


def test_a_rank_that_counts_steps_from_another_number_is_aligned_by_its_calls(root, capsys):
    def shift(name, text):
        if name == "kernel_details.csv":
            head, *lines = text.splitlines()
            return "\n".join([head, *(f"{int(line.split(',', 1)[0]) + 90},{line.split(',', 1)[1]}" for line in lines)]) + "\n"
        return text.replace('"step', '"step9') if name == "communication.json" else text

    _rewrite(sorted(root.iterdir())[3], shift)
    found = analysed(capsys, root)
    assert kinds(found)["shifted_steps"]["rank"] == 3
    assert "differ by 90" in kinds(found)["shifted_steps"]["text"]
    assert list(kinds(found)) == ["shifted_steps"]
    assert found["run"]["steps"] == [0, 1, 2]
    assert found["matching"]["matched"] == found["matching"]["rows"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda frame: frame.filter(pl.col("step") < 2), id="fewer-steps"),
        pytest.param(
            lambda frame: frame.with_columns(bytes=pl.col("bytes") + 4) if "bytes" in frame.columns else frame, id="other-calls"
        ),
    ],
)
def test_a_rank_with_other_steps_is_left_out(other, recording):
    whole = digests_of(recording)
    moved = pl.col("step") + pl.when(pl.col("rank") == 3).then(90).otherwise(0)
    odd = {
        name: pl.concat([frame.filter(pl.col("rank") != 3), other(frame.filter(pl.col("rank") == 3))]).with_columns(step=moved)
        for name, frame in whole.frames.items()
        if {"rank", "step"} <= set(frame.columns)
    }
    found = analyse(Digests({**whole.frames, **odd})).as_dict()
    assert kinds(found)["other_steps"]["rank"] == 3
    assert "no step in common" in kinds(found)["other_steps"]["text"]
    assert "shifted_steps" not in kinds(found)
    assert found["run"]["steps"] == [0, 1, 2]


def test_a_digest_of_another_version_is_made_again(tmp_path, recording, capsys):
    write_captures(tmp_path, recording, "kineto", missing=(2, 3))
    first = analysed(capsys, tmp_path)
    kept = next(tmp_path.glob(".rank-0*.arrow"))
    old = kept.with_name(kept.name.replace("digest-v", "digest-v0"))
    kept.rename(old)
    again = analysed(capsys, tmp_path)
    assert kinds(again)["old_digest"]["path"] == "rank-0.pt.trace.json"
    assert kept.is_file()
    assert not old.exists()
    assert analysed(capsys, tmp_path) == first


def test_digests_of_another_version_are_refused(tmp_path, recording, capsys):
    write_cluster(tmp_path, digests_of(recording))
    path = tmp_path / "cluster_calls.parquet"
    pl.read_parquet(path).write_parquet(path, metadata={"stepscope.digest": "0"})
    assert main(["cluster", str(tmp_path)]) == 2
    assert "digests of version 0" in capsys.readouterr().err


def test_comparison_with_a_baseline(run, tmp_path, capsys):
    write_captures(tmp_path, record(Plan("ddp", dp=4, micro=2, layers=1, per_host=2, base_ns=PLAN.base_ns / 2), 3, 3), "text")
    found = analysed(capsys, run, "--baseline", tmp_path)
    baseline = found["baseline"]
    assert baseline["after"] == pytest.approx(found["step_ms"]["median"])
    assert baseline["before"] == pytest.approx(analysed(capsys, tmp_path)["step_ms"]["median"])
    assert baseline["change"] == pytest.approx(baseline["after"] / baseline["before"] - 1)
    assert baseline["change"] > 0.3
    assert main(["cluster", str(run), "--baseline", str(tmp_path), "--lang", "en"]) == 0
    assert f"median step {baseline['before']:.2f} ms, now {baseline['after']:.2f}" in capsys.readouterr().out
    assert main(["cluster", str(run), "--baseline", str(tmp_path / "absent")]) == 2


def test_kernels_by_name_and_shapes(run):
    path = str(sorted(run.iterdir())[2])
    lasted = defaultdict(list)
    with open(f"{path}/ASCEND_PROFILER_OUTPUT/kernel_details.csv", newline="") as file:
        for row in csv.DictReader(file):
            if row["Accelerator Core"] != "HCCL":
                lasted[row["Name"], row["Input Shapes"].strip('"')].append(round(float(row["Duration(us)"]) * 1000))
    found = read_lean([path])[path].digests["cluster_kernels"]
    assert {
        (row["name"], row["shapes"]): (row["count"], row["total_ns"], row["median_ns"]) for row in found.iter_rows(named=True)
    } == {key: (len(several), sum(several), int(statistics.median(several))) for key, several in lasted.items()}
    assert found["total_ns"].to_list() == sorted(found["total_ns"], reverse=True)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("clock_refused", {"reason": "few calls", "ranks": [1], "count": 1}), "clock of rank 1 not aligned: few calls"),
        (
            Problem("clock_refused", {"reason": "few calls", "ranks": [1, 4], "count": 2}),
            "clock of ranks 1, 4 not aligned: few calls",
        ),
        (Problem("missing_ranks", {"ranks": [7], "count": 1}), "1 rank has no capture: 7"),
        (Problem("missing_ranks", {"ranks": [5, 6, 7], "count": 3}), "3 ranks have no capture: 5–7"),
        (Problem("losses", {"count": 1}, 3), "rank 3 lost 1 record"),
    ],
)
def test_one_and_many(problem, text):
    assert problem_text(problem, "en") == text

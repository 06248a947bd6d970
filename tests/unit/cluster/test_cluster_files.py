"""cluster_analysis_output: rules of stages and indices, one form from the other, and what is refused."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3

import pytest

from stepscope.cli import main
from stepscope.cluster.read.rank_files import read_rank_files
from stepscope.cluster.simulate import Plan, record
from stepscope.cluster.simulate.captures import write_captures
from stepscope.export.cluster.database import write_database
from stepscope.export.cluster.layout import parallel_indices, stage_groups
from stepscope.export.cluster.ranks import TEXT, RankFiles
from stepscope.export.cluster.recipes import outliers
from stepscope.export.cluster.text import write_text


@pytest.mark.parametrize(
    ("collective", "pipeline", "stages"),
    [
        pytest.param({"dp0": {0, 1}, "dp1": {2, 3}, "world": {0, 1, 2, 3}}, [{0, 2}, {1, 3}], [[0, 1], [2, 3]], id="two-stages"),
        pytest.param({"tp": {0, 1}, "dp": {1, 2}, "other": {4}}, [{0, 4}], [[0, 1, 2], [4]], id="groups-that-share-a-rank-join"),
        pytest.param({"dp": {0, 1}}, [], [], id="no-pipeline"),
        pytest.param({"embedding": {0, 4}}, [{0, 2}, {2, 4}], [], id="groups-along-a-pipeline-do-not-count"),
    ],
)
def test_stages(collective, pipeline, stages):
    assert stage_groups(collective, pipeline) == stages


def test_place_of_ranks_in_the_layout():
    sizes = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "data_parallel_size": 2}
    assert parallel_indices({"world_size": 8, **sizes}) == [
        (0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1), (0, 1, 0), (0, 1, 1), (1, 1, 0), (1, 1, 1),
    ]  # fmt: skip
    assert parallel_indices({"world_size": 9, **sizes}) is None
    assert parallel_indices({"world_size": "8", **sizes}) is None


def _operator(start, lasted, moved):
    return {
        "Communication Time Info": {
            "Start Timestamp(us)": start, "Elapse Time(ms)": lasted, "Transit Time(ms)": 1.0, "Wait Time(ms)": 3.0,
            "Synchronization Time(ms)": 0.0, "Idle Time(ms)": 0.0, "Wait Time Ratio": 0.75, "Synchronization Time Ratio": 0.0,
        },
        "Communication Bandwidth Info": {
            "HCCS": {
                "Transit Size(MB)": moved, "Transit Time(ms)": 2.0, "Bandwidth(GB/s)": moved / 2, "Large Packet Ratio": 0,
                "Size Distribution": {"1.5": [2, 2.0]},
            }
        },
    }  # fmt: skip


def _rank(rank, *, links):
    figures = {"Transport Type": "HCCS", "Transit Size(MB)": 2.0, "Transit Time(ms)": 1.0, "Bandwidth(GB/s)": 2.0, "Op Name": "a"}
    operators = {"hcom_a@5": _operator(1, 4.0, 4.0), "hcom_b@5": _operator(9, 2.0, 2.0)}
    return RankFiles(
        rank, f"/run/{rank}", TEXT, steps=[("7", [1.0 + rank] * 9)],
        communication={"step7": {"p2p": {}, "collective": operators}},
        matrix={"step7": {"p2p": {}, "collective": {"a-total@5": {link: dict(figures) for link in links}}}},
    )  # fmt: skip


def test_sums_by_hand(tmp_path):
    ranks = [_rank(4, links=["0-0", "0-1", "0-2"]), _rank(6, links=["1-1"])]
    write_text(ranks, tmp_path)
    total = json.loads((tmp_path / "cluster_communication.json").read_text())["(4, 6)"]["step7"]["Total Op Info@5"]["6"]
    times = total["Communication Time Info"]
    assert (times["Elapse Time(ms)"], times["Wait Time(ms)"], times["Wait Time Ratio"]) == (6.0, 6.0, 0.75)
    assert "Start Timestamp(us)" not in times
    assert total["Communication Bandwidth Info"]["HCCS"] == {
        "Transit Time(ms)": 4.0, "Transit Size(MB)": 6.0, "Size Distribution": {"1.5": [4, 4.0]}, "Bandwidth(GB/s)": 1.5,
    }  # fmt: skip
    matrix = json.loads((tmp_path / "cluster_communication_matrix.json").read_text())["(4, 6)"]["step7"]
    # 0-2: which rank number 2 of the group is, nobody tells.
    assert set(matrix["a-total@5"]) == set(matrix["Total Op Info@5"]) == {"4-4", "4-6", "6-6"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    write_captures(root, record(Plan("megatron", tp=1, pp=2, dp=2, micro=2, layers=1, per_host=2), 2, 1), "text")
    return root


def test_both_forms_say_the_same(run, tmp_path):
    ranks = [read_rank_files(path, place) for place, path in enumerate(sorted(run.iterdir()))]
    write_text(ranks, tmp_path)
    write_database(ranks, tmp_path)
    with (tmp_path / "cluster_step_trace_time.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    database = sqlite3.connect(tmp_path / "cluster_analysis.db")
    stored = database.execute("SELECT * FROM ClusterStepTraceTime").fetchall()
    assert [row[1] for row in rows] == [row[1] for row in stored] == ["rank"] * 8 + ["stage"] * 4
    assert [[float(cell) for cell in row[3:12]] for row in rows] == [list(row[3:12]) for row in stored]
    assert [row[12:] for row in rows] == [[str(cell) for cell in row[12:]] for row in stored]
    document = json.loads((tmp_path / "cluster_communication.json").read_text())
    listed = {
        (step, int(rank), name): entry["Communication Time Info"]["Elapse Time(ms)"]
        for steps in document.values()
        for step, operators in steps.items()
        for name, by_rank in operators.items()
        for rank, entry in by_rank.items()
    }
    query = "SELECT step, rank_id, hccl_op_name || '@' || group_name, elapsed_time FROM ClusterCommunicationTime"
    stored = {tuple(row[:3]): row[3] for row in database.execute(query)}
    database.close()
    assert stored == pytest.approx(listed)


def test_a_rank_whose_files_are_torn_is_named_and_the_rest_is_complete(run, tmp_path, capsys):
    root = tmp_path / "run"
    shutil.copytree(run, root)
    torn = sorted(root.iterdir())[1] / "ASCEND_PROFILER_OUTPUT" / "communication_matrix.json"
    torn.write_bytes(torn.read_bytes()[:100])
    assert main(["cluster", str(root), "--no-cache", "--out", str(tmp_path / "out"), "--format", "both"]) == 0
    shown = capsys.readouterr().out
    assert "rank 1 is missing in cluster_analysis_output" in shown
    assert "not valid JSON" in shown
    folder = tmp_path / "out" / "cluster_analysis_output"
    assert len(list(folder.iterdir())) == 5
    with sqlite3.connect(folder / "cluster_analysis.db") as database:
        ranks = database.execute("SELECT DISTINCT rank_id FROM ClusterCommunicationTime ORDER BY 1").fetchall()
    assert ranks == [(0,), (2,), (3,)]


@pytest.mark.slow  # half a second and more
def test_what_cannot_be_written_is_refused(run, tmp_path, capsys):
    kept = str(tmp_path / "digests")
    assert main(["cluster", str(run), "--no-cache", "--digests", kept]) == 0
    for arguments, said in (
        ([kept, "--out", str(tmp_path / "a")], "cannot be written from digests"),
        ([str(run), "--no-cache", "--format", "db"], "--format and --recipes have nothing to write"),
    ):
        assert main(["cluster", *arguments]) == 2
        assert said in capsys.readouterr().err
    root = tmp_path / "nameless"
    shutil.copytree(run, root)
    for path in root.glob("*/*.json"):
        path.unlink()
    assert main(["cluster", str(root), "--no-cache", "--workers", "1", "--out", str(tmp_path / "b")]) == 2
    assert "4 captures do not say their rank" in capsys.readouterr().err
    assert main(["cluster", str(root), "--no-cache", "--out", str(tmp_path / "b"), "--workers", "1", "--assume-ranks"]) == 0


@pytest.mark.parametrize(
    ("times", "slow"),
    [
        pytest.param([1.0, 9.0, 9.1, 9.2], [0], id="one-is-far-below"),
        pytest.param([8.9, 9.0, 9.1, 9.2], [], id="none"),
        pytest.param([9.0, 1.0], [], id="two-tell-nothing"),
        pytest.param([1.0, 9.0, 9.0, 9.0], [], id="too-few-different-ones"),
        pytest.param([9 + place / 100 for place in range(120)] + [1.0], [120], id="many-three-standard-deviations"),
        pytest.param([50.0, *(9 + place / 1000 for place in range(120))], [1], id="many-one-far-above-blames-the-shortest"),
    ],
)
def test_votes_for_slow_ranks(times, slow):
    assert outliers(times) == slow


def test_recipes_need_databases_and_known_names(run, tmp_path, capsys):
    assert main(["cluster", str(run), "--out", str(tmp_path), "--recipes", "slow_rank", "--lang", "en"]) == 0
    assert "rank 0 is missing in the tables of recipes" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["cluster", str(run), "--out", str(tmp_path), "--recipes", "slow_rank,other"])
    assert "'other' is not one of cluster_time_summary" in capsys.readouterr().err

"""Runs, workers and spans of every layout (docs/reference/viewer.md 2)."""

from __future__ import annotations

import gzip

import pytest

from stepscope.web.catalogue import Catalogue
from stepscope.web.discovery import discover, natural

OUTPUT = "ASCEND_PROFILER_OUTPUT"


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "logs"
    root.mkdir()

    def make(*files):
        for name in files:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        return root

    return make


def found(*paths, **options):
    return [item.key for item in discover(paths, **options)]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        pytest.param(f"run1/worker1_1/{OUTPUT}/trace_view.json", ("run1", "worker1", "1"), id="literal-layout"),
        pytest.param(f"run1/a_b_2.5/{OUTPUT}/x.csv", ("run1", "a_b", "2.5"), id="number-with-a-point"),
        pytest.param(f"run1/host_7_20250109_ascend_pt/{OUTPUT}/x.csv", ("run1", "host_7", "20250109"), id="ascend_pt"),
        pytest.param(f"run1/host_7_2_ascend_ms/{OUTPUT}/x.csv", ("run1", "host_7", "2"), id="ascend_ms"),
        pytest.param(f"run1/rank0_ascend_pt/{OUTPUT}/x.csv", ("run1", "rank0_ascend_pt", "1"), id="without-a-number"),
        pytest.param(f"a/b/w_1/{OUTPUT}/x.csv", ("a/b", "w", "1"), id="deeper-runs-have-their-path"),
        pytest.param(f"w_1/{OUTPUT}/x.csv", ("logs", "w", "1"), id="workers-directly-below"),
        pytest.param("run1/w0.1700000000000.pt.trace.json", ("run1", "w0", "1"), id="kineto"),
        pytest.param("run1/w0.pt.trace.json.gz", ("run1", "w0", "1"), id="kineto-without-time"),
        pytest.param("run1/ascend_pytorch_profiler_3.db", ("run1", "3", "1"), id="database"),
        pytest.param("run1/msprof_20250101.db", ("run1", "20250101", "1"), id="msprof-database"),
    ],
)
def test_layouts(tree, file, expected):
    assert found(tree(file)) == [expected]


def test_rank_of_a_folder_without_number(tree):
    root = tree(f"run/x_ascend_pt/{OUTPUT}/a.csv", "run/x_ascend_pt/profiler_info_12.json")
    assert found(root) == [("run", "12", "1")]


@pytest.mark.parametrize("name", ["rank_{}_ascend_pt", "host_77{}_20250109_ascend_pt", "same_{}_ascend_ms"])
def test_the_recorded_rank_goes_before_names(tree, name):
    files = [f"run/{name.format(rank)}/{part}" for rank in range(4) for part in (f"{OUTPUT}/a.csv", f"profiler_info_{rank}.json")]
    assert [worker for _, worker, _ in found(tree(*files))] == ["0", "1", "2", "3"]


def test_what_is_about_all_ranks_is_offered_whatever_their_folders_are_called(tree):
    parts = (f"{OUTPUT}/step_trace_time.csv", "profiler_info_{}.json")
    catalogue = Catalogue([tree(*(f"run/rank_{rank}_ascend_pt/{part.format(rank)}" for rank in range(4) for part in parts))])
    (run,) = catalogue.listing()["runs"]
    assert [worker["name"] for worker in run["workers"]] == ["0", "1", "2", "3"]
    assert {"Cluster", "Distributed"} <= set(run["views"])
    catalogue.close()


def test_captures_of_one_rank_are_spans_in_order_of_time(tree):
    folders = [("host_9_20250102_ascend_pt", 0), ("host_8_20250101_ascend_pt", 0), ("host_7_20250101_ascend_pt", 1)]
    files = [f"run/{name}/{part}" for name, rank in folders for part in (f"{OUTPUT}/a.csv", f"profiler_info_{rank}.json")]
    items = discover([tree(*files)])
    assert [(item.worker, item.files.root.name) for item in items] == [
        ("0", "host_8_20250101_ascend_pt"),
        ("0", "host_9_20250102_ascend_pt"),
        ("1", "host_7_20250101_ascend_pt"),
    ]


def test_the_rank_of_a_database_goes_before_names(tree):
    assert found(tree(f"run/w_1/{OUTPUT}/ascend_pytorch_profiler_5.db")) == [("run", "5", "1")]


def test_the_folder_itself_is_a_worker(tree):
    root = tree(f"run/w_3/{OUTPUT}/trace_view.json")
    assert found(root / "run" / "w_3") == [("w_3", "w", "3")]
    assert found(root / "run" / "w_3" / OUTPUT) == [("w_3", "w", "3")]


def test_a_trace_named_itself(tree):
    root = tree("run/any.json", "run/other.json")
    assert found(root / "run" / "any.json") == [("run", "any", "1")]
    assert found(root) == []  # neither begins as a trace does


def test_chrome_traces_of_the_very_folder(tree):
    root = tree("a.json", "settings.json")
    (root / "a.json").write_text('{"traceEvents": []}')
    assert found(root) == [("logs", "a", "1")]


@pytest.mark.parametrize("name", ["any.json", "any.json.gz"])
def test_traces_of_any_name_below_a_parent_folder(tree, name):
    root = tree("run/w.pt.trace.json", "run/settings.json", f"run/{name}")
    text = b'{"traceEvents": []}'
    (root / "run" / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert found(root) == [("run", "any", "1"), ("run", "w", "1")]


def test_spans_in_order_of_time(tree):
    root = tree("r/w.900.pt.trace.json", "r/w.1000.pt.trace.json", "r/w.1000000000000.pt.trace.json")
    items = discover([root])
    assert [(item.span, item.files.root.name.split(".")[1]) for item in items] == [
        ("1", "900"),
        ("2", "1000"),
        ("3", "1000000000000"),
    ]


def test_numbers_sort_as_numbers(tree):
    root = tree(*(f"r/w{number}_1/{OUTPUT}/x.csv" for number in (10, 2, 1)))
    assert [worker for _, worker, _ in found(root)] == ["w1", "w2", "w10"]
    assert sorted(["a10", "a2", "b"], key=natural) == ["a2", "a10", "b"]


def test_raw_folders_are_not_analysed(tree):
    root = tree("r/h_1_2_ascend_pt/FRAMEWORK/torch.op_range", f"r/h_2_2_ascend_pt/{OUTPUT}/x.csv")
    (root / "r" / "h_2_2_ascend_pt" / "FRAMEWORK").mkdir()
    assert {item.worker: item.not_analysed for item in discover([root])} == {"h_1": True, "h_2": False}


def test_an_analysis_that_ends_is_seen(tree):
    """Beside the page somebody, or the job itself, analyses what was recorded; the raw data stay the same."""
    root = tree("r/h_1_2_ascend_pt/FRAMEWORK/torch.op_range")
    catalogue = Catalogue([root])

    def span():
        (run,) = catalogue.listing()["runs"]
        return run["workers"][0]["spans"][0]

    before = span()
    assert before["state"] == "not_analysed"
    tree(f"r/h_1_2_ascend_pt/{OUTPUT}/step_trace_time.csv", f"r/h_1_2_ascend_pt/{OUTPUT}/trace_view.json")
    catalogue.scan(force=True)
    after = span()
    assert after["state"] == "found"
    assert after["command"] is None
    catalogue.close()


def test_what_is_no_run(tree):
    root = tree("r/cluster_analysis_output/w_1/x.csv", "r/.hidden/w.pt.trace.json", "r/notes.json", "r/x.db")
    assert found(root) == []


def test_results_beside_their_trace_are_no_run_of_their_own(tree):
    root = tree(
        "r/w.pt.trace.json", "r/w.pt.trace_stepscope/ascend_pytorch_profiler.db", "r/other_stepscope/ascend_pytorch_profiler_3.db"
    )
    assert found(root) == [("r", "w", "1"), ("r/other_stepscope", "3", "1")]


def test_several_folders_and_the_same_twice(tree):
    root = tree(f"a/w_1/{OUTPUT}/x.csv", f"b/w_1/{OUTPUT}/x.csv")
    assert found(root / "a", root / "b") == [("a", "w", "1"), ("b", "w", "1")]
    assert found(root / "a", root / "a") == [("a", "w", "1")]


def test_shown_paths_stay_below_the_folder(tree):
    root = tree(f"a/w_1/{OUTPUT}/x.csv")
    assert [item.path for item in discover([root])] == ["a/w_1"]
    assert [item.path for item in discover([root / "a" / "w_1"])] == ["w_1"]

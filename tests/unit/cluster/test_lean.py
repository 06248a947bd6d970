"""Digests from small files, many ranks at once, are those of the general way; what does not fit is left to it."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from shared_data import GOLDEN

from stepscope.cluster.digest import MemberLists
from stepscope.cluster.read import lean, reading
from stepscope.cluster.read.lean import read_lean
from stepscope.cluster.read.names import operator_names
from stepscope.cluster.read.reading import Options, read_digests, read_small_files
from stepscope.cluster.read.store import from_bytes
from stepscope.cluster.simulate import Plan, record
from stepscope.cluster.simulate.captures import write_captures


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    write_captures(root, record(Plan("megatron", tp=1, pp=2, dp=2, micro=2, layers=1, per_host=2), 2, 1), "text")
    return root


@pytest.fixture
def copy(run, tmp_path):
    """Two ranks of the run, to be damaged."""
    paths = []
    for path in sorted(run.iterdir())[:2]:
        shutil.copytree(path, tmp_path / path.name)
        paths.append(str(tmp_path / path.name))
    return paths


def _alone(digests):
    """With its own lists of members only: ranks that are read together share theirs."""
    lists = MemberLists()
    return lists.give(lists.take(digests))


def _assert_same(paths):
    found = read_lean(paths, deep=True)
    assert list(found) == paths
    for path, outcome in zip(paths, read_digests(paths, Options(cache=False)), strict=True):
        general = from_bytes(outcome.data)
        assert found[path].rank == outcome.rank
        own = _alone(found[path].digests)
        for name, frame in general.frames.items():
            left = ["path", "lean"] if name == "cluster_ranks" else []
            assert own[name].drop(left).equals(frame.drop(left)), (path, name)
        assert general["cluster_steps"]["computing_ns"].min() > 0


def test_the_digest_is_that_of_the_general_way(run):
    _assert_same([str(path) for path in sorted(run.iterdir())])


def test_operators_that_come_often_are_named_once():
    texts = pl.Series(["hcom_allReduce_", None, "MatMul", "hcom_allReduce_", "ncclDevKernel_AllGather_RING_LL"])
    assert operator_names(texts).to_list() == ["allreduce", "?", "MatMul", "allreduce", "allgather"]
    assert operator_names(texts.clear()).to_list() == []


def test_the_same_on_real_files(tmp_path):
    paths = []
    for level in ("level0", "level2"):
        for source in sorted((GOLDEN.folder() / "ascend_pt" / "text" / level).iterdir()):
            target = tmp_path / f"{level}_{source.name}"
            shutil.copytree(
                source, target, ignore=shutil.ignore_patterns("trace_view.json", "*memory*", "npu_module*", "operator_*")
            )
            paths.append(str(target))
    _assert_same(paths)


def test_batches_do_not_change_the_digest(run, monkeypatch):
    paths = [str(path) for path in sorted(run.iterdir())]
    whole = read_lean(paths)
    monkeypatch.setattr(lean, "BATCH", 3)
    for path, one in read_lean(paths).items():
        assert all(_alone(one.digests)[name].equals(frame) for name, frame in _alone(whole[path].digests).frames.items())


def _csv(path: str) -> Path:
    return Path(path) / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"


def _cut(text: str) -> str:
    return text[: len(text) // 2]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(_cut, id="torn"),
        pytest.param(lambda text: text.replace("Duration(us)", "Something"), id="a-needed-column-is-missing"),
        pytest.param(lambda text: text.replace("hcom_", "other_"), id="calls-that-the-json-does-not-know"),
        pytest.param(lambda text: text.replace("MatMul", "MatMulAivKernel"), id="kernels-that-drive-communication"),
        pytest.param(lambda text: text.replace(",8,0,NO", ',8,0,"N\nO"'), id="a-line-end-inside-a-cell"),
        pytest.param(lambda text: "", id="empty"),
    ],
)
def test_a_capture_that_is_not_as_it_should_be_is_left_to_the_general_way(copy, damage):
    _csv(copy[0]).write_text(damage(_csv(copy[0]).read_text()))
    assert list(read_lean(copy)) == [copy[1]]


def test_torn_json_is_left_to_the_general_way(copy):
    path = Path(copy[0]) / "ASCEND_PROFILER_OUTPUT" / "communication.json"
    path.write_bytes(path.read_bytes()[:50])
    assert list(read_lean(copy)) == [copy[1]]


@pytest.mark.parametrize("more", ["ASCEND_PROFILER_OUTPUT/trace_view.json", "FRAMEWORK/torch.op_range"])
def test_more_than_small_files_is_read_unless_the_run_is_large(copy, monkeypatch, more):
    (Path(copy[0]) / more).parent.mkdir(exist_ok=True)
    (Path(copy[0]) / more).write_text("[]")
    assert [one.path for one in read_small_files(copy, Options())] == [copy[1]]
    monkeypatch.setattr(reading, "FEW", 1)
    assert [(one.path, one.shallow) for one in read_small_files(copy, Options())] == [(copy[0], True), (copy[1], False)]
    assert [one.path for one in read_small_files(copy, Options(deep=True))] == [copy[1]]
    assert read_small_files(copy, Options(keep_stores=True)) == []

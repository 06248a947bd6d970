"""Which captures lie under a path."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from stepscope.capture import Capture
from stepscope.errors import CaptureError
from stepscope.formats.ascend_capture.capture_folder import has_text
from stepscope.formats.chrome.files import is_array
from stepscope.formats.discover import find

PROF = "PROF_000001_20230628101435646_FKFLNPEPPRRCFCBA"


def folder(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
    return root


def test_a_capture_folder_is_found_by_its_parts(tmp_path):
    folder(tmp_path, "FRAMEWORK/", f"{PROF}/", "ASCEND_PROFILER_OUTPUT/trace_view.json")
    (found,) = find(tmp_path)
    assert (found.root, found.framework) == (tmp_path, tmp_path / "FRAMEWORK")
    assert [prof.name for prof in found.profs] == [PROF]
    assert has_text(found)


def test_children_are_searched_one_level_deep(tmp_path):
    folder(tmp_path, "b_ascend_pt/FRAMEWORK/", "a_ascend_pt/FRAMEWORK/", "deep/er/FRAMEWORK/", "run.pt.trace.json.gz", "notes.txt")
    assert [found.root.name for found in find(tmp_path)] == ["a_ascend_pt", "b_ascend_pt", "run.pt.trace.json.gz"]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        pytest.param(["x/b_ascend_pt/FRAMEWORK/", "y/a_ascend_pt/FRAMEWORK/"], ["b_ascend_pt", "a_ascend_pt"], id="experiments"),
        pytest.param([f"summary/run_1/profiler/{PROF}/host/"], [PROF], id="mindinsight"),
        pytest.param(["x/y/w.pt.trace.json", "x/y/package.json"], ["w.pt.trace.json"], id="files-by-their-names"),
        pytest.param(["x/a_ascend_pt/FRAMEWORK/", "x/y/b_ascend_pt/FRAMEWORK/"], ["a_ascend_pt"], id="the-first-level"),
        pytest.param(["x/y/z/deep/a_ascend_pt/FRAMEWORK/"], None, id="too-deep"),
    ],
)
def test_folders_of_folders_are_searched_when_there_is_nothing_else(tmp_path, names, found):
    folder(tmp_path, *names)
    if found is None:
        with pytest.raises(CaptureError, match="no capture here"):
            find(tmp_path)
    else:
        assert [item.root.name for item in find(tmp_path)] == found


@pytest.mark.parametrize(
    ("inside", "part"),
    [("ASCEND_PROFILER_OUTPUT", "output"), ("ASCEND_PROFILER_OUTPUT/trace_view.json", "output"), (PROF, "profs")],
)
def test_a_part_stands_for_its_capture(tmp_path, inside, part):
    folder(tmp_path, "ASCEND_PROFILER_OUTPUT/trace_view.json", f"{PROF}/host/")
    (found,) = find(tmp_path / inside)
    assert getattr(found, part)


@pytest.mark.parametrize(
    ("names", "given", "what", "cause"),
    [
        pytest.param([], "absent", "no such file or folder", None, id="missing"),
        pytest.param([], ".", "no capture here", "the folder is empty", id="empty"),
        pytest.param(["a.txt"], ".", "no capture here", "it holds a.txt", id="other-files"),
        pytest.param(["a.txt"], "a.txt", "no capture here", "no reader knows a.txt", id="not-a-trace"),
    ],
)
def test_no_capture_says_why(tmp_path, names, given, what, cause):
    folder(tmp_path, *names)
    with pytest.raises(CaptureError, match=what) as problem:
        find(tmp_path / given)
    assert problem.value.where == str(tmp_path / given)
    assert problem.value.fix
    assert cause is None or cause in (problem.value.cause or "")


def test_a_link_is_followed_once_and_noted(tmp_path):
    real = folder(tmp_path / "real_ascend_pt", "FRAMEWORK/")
    (tmp_path / "link").symlink_to(real)
    (found,) = find(tmp_path / "link")
    assert (found.root, found.alias) == (real, tmp_path / "link")


def test_links_inside_a_capture_are_not_followed(tmp_path):
    outside = folder(tmp_path / "outside", "torch.op_range")
    folder(tmp_path / "x_ascend_pt", f"{PROF}/")
    (tmp_path / "x_ascend_pt" / "FRAMEWORK").symlink_to(outside)
    (found,) = find(tmp_path / "x_ascend_pt")
    assert found.framework is None
    assert [path.name for path in found.linked] == ["FRAMEWORK"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_unreadable(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(CaptureError, match="cannot be read"):
        find(tmp_path / "closed")


@pytest.mark.parametrize(
    ("names", "requested", "source"),
    [
        pytest.param(["FRAMEWORK/", "ASCEND_PROFILER_OUTPUT/trace_view.json"], "auto", "raw", id="raw-wins"),
        pytest.param(
            ["FRAMEWORK/", f"{PROF}/", "ASCEND_PROFILER_OUTPUT/trace_view.json"], "auto", "text", id="unparsed-device-data"
        ),
        pytest.param(["FRAMEWORK/", f"{PROF}/"], "auto", "raw", id="better-half-than-nothing"),
        pytest.param([f"{PROF}/msprof_20250101000000.db"], "auto", "raw", id="vendor-database"),
        pytest.param(["ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db"], "auto", "db", id="db-only"),
        pytest.param(
            ["ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db", "ASCEND_PROFILER_OUTPUT/kernel_details.csv"],
            "db",
            "db",
            id="requested",
        ),
    ],
)
def test_choice_of_source(tmp_path, names, requested, source):
    (found,) = find(folder(tmp_path, *names))
    assert Capture(found, source=requested).source == source


def test_nothing_readable(tmp_path):
    (found,) = find(folder(tmp_path, f"{PROF}/device_0/"))
    with pytest.raises(CaptureError, match="nothing readable"):
        Capture(found)


@pytest.mark.parametrize(("text", "ascend"), [(b' [{"ph": "X"}]', True), (b'{"traceEvents": []}', False), (b"", False)])
def test_timeline_or_kineto(tmp_path, text, ascend):
    (tmp_path / "t.json").write_bytes(text)
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(text))
    (tmp_path / "packed.json").write_bytes(gzip.compress(text))  # by its content, whatever it is called
    assert [is_array(tmp_path / name) for name in ("t.json", "t.json.gz", "packed.json")] == [ascend] * 3


@pytest.mark.parametrize(
    ("event", "kineto"),
    [
        ('"cat":"user_annotation"', True),
        ('"cat": "xpu_runtime"', True),
        ('"cat": "cpu_op", "args": {"External id": 3}', True),
        ('"cat": "cpu_op", "args": {"Sequence number": 3}', False),
        ('"cat": "async_npu"', False),
    ],
)
def test_an_array_of_events_is_kinetos_by_what_only_kineto_writes(tmp_path, event, kineto):
    (tmp_path / "t.json").write_text(f'[{{"ph": "X", "name": "kernel", {event}}}]')
    (found,) = find(tmp_path)
    assert found.format == ("kineto" if kineto else "ascend_timeline")


def test_a_run_for_mindinsight_is_found_by_the_records_in_it(tmp_path):
    folder(tmp_path, "parallel_strategy/x.json", f"profiler/{PROF}/host/data/", "profiler/minddata_pipeline_raw_0.csv")
    assert [found.root.name for found in find(tmp_path)] == [PROF]


@pytest.mark.parametrize("place", ["", "profiler/", "summary/run_0/profiler/"], ids=["folder", "run", "summary"])
def test_results_of_mindinsight_are_refused_with_the_reason(tmp_path, place):
    folder(
        tmp_path, f"{place}aicore_intermediate_1_detail.csv", f"{place}step_trace_point_info.json", f"{place}framework_raw_1.csv"
    )
    with pytest.raises(CaptureError, match="results of MindInsight") as caught:
        find(tmp_path)
    assert "PROF_*" in caught.value.fix

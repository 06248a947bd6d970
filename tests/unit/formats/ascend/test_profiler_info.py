# SPDX-License-Identifier: Apache-2.0
"""Facts of a capture from profiler_info*.json and profiler_metadata.json, in every form seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.formats.ascend.profiler_info import read_capture_facts
from stepscope.tables import Facts


def info(common: dict[str, Any] | None = None, experimental: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"config": {"common_config": common or {}, "experimental_config": experimental or {}}, **more}


def facts_of(folder: Path, content: Any, name: str = "profiler_info.json", **options: bool) -> tuple[Facts, dict[str, str]]:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    facts, quality = read_capture_facts(folder, **options)
    return facts, dict(quality.select("issue", "detail").rows())


def test_everything_that_is_said(tmp_path):
    content = info(
        {
            "activities": ["ProfilerActivity.NPU", "ProfilerActivity.CPU"],
            "schedule": {"wait": 1, "active": 2, "warmup": 0, "repeat": 1, "skip_first": 3, "skip_first_wait": 0},
            "record_shapes": True,
            "profile_memory": True,
            "with_stack": False,
            "with_flops": True,
            "with_modules": True,
        },
        {
            "_profiler_level": "Level1",
            "_aic_metrics": "ACL_AICORE_PIPE_UTILIZATION",
            "_l2_cache": True,
            "_mstx": True,
            "_op_attr": True,
            "_sys_io": True,
            "_sys_interconnection": True,
            "_data_simplification": True,
            "_export_type": ["db", "text"],
            "_host_sys": ["cpu", "mem"],
            "_gc_detect_threshold": 2,
        },
        start_info={"start_monotonic": 100},
        end_info={"collectionTimeEnd": 5000, "MonotonicTimeEnd": 1100},
        torch_npu_version="2.1.0",
        cann_version="8.0",
        rank_id=3,
    )
    (tmp_path / "profiler_metadata.json").write_text('{"lr": 0.1, "ENV_VARIABLES": {"HCCL_ALGO": ""}}')
    facts, issues = facts_of(tmp_path, content, "profiler_info_3.json")
    assert issues == {}
    assert facts == Facts(
        device_kind="npu",
        rank=3,
        activities=("NPU", "CPU"),
        level="Level1",
        aic_metrics="ACL_AICORE_PIPE_UTILIZATION",
        record_shapes=True,
        profile_memory=True,
        with_flops=True,
        with_modules=True,
        l2_cache=True,
        mstx=True,
        op_attr=True,
        sys_io=True,
        sys_interconnection=True,
        host_sys=("cpu", "mem"),
        gc_threshold=2.0,
        data_simplification=True,
        export_type=("text", "db"),
        schedule={"wait": 1, "active": 2, "warmup": 0, "repeat": 1, "skip_first": 3, "skip_first_wait": 0},
        session_start_ns=4000,
        session_end_ns=5000,
        torch_npu_version="2.1.0",
        cann_version="8.0",
        metadata={"lr": 0.1, "ENV_VARIABLES": {"HCCL_ALGO": ""}},
        profiler_info=content,
    )
    assert Facts.of(facts.table()) == facts


@pytest.mark.parametrize(
    ("said", "rank"), [(0, 0), ("0", 0), (7, 7), (" 12 ", 12), (None, -1), ("none", -1), ([], -1), (True, -1), (2.5, -1)]
)
def test_rank(tmp_path, said, rank):
    assert facts_of(tmp_path, info(rank_id=said))[0].rank == rank


def test_rank_from_the_name(tmp_path):
    assert facts_of(tmp_path, info(), "profiler_info_5.json")[0].rank == 5


@pytest.mark.parametrize(
    ("said", "export", "warned"),
    [
        ("text", ("text",), False),
        ("db", ("db",), False),
        (["db"], ("db",), False),
        (["db", "text"], ("text", "db"), False),
        (["db", "pdf"], ("db",), False),
        ([], ("text",), True),
        ("pdf", ("text",), True),
        (7, ("text",), True),
        (None, ("text",), False),
    ],
)
def test_export_type(tmp_path, said, export, warned):
    facts, issues = facts_of(tmp_path, info({}, {"_export_type": said}))
    assert facts.export_type == export
    assert ("unknown-setting" in issues) == warned


@pytest.mark.parametrize(
    ("said", "schedule"), [({"_wait": 1, "_active": 2}, {"wait": 1, "active": 2}), ({}, {}), (None, None), ("x", None)]
)
def test_schedule(tmp_path, said, schedule):
    assert facts_of(tmp_path, info({"schedule": said, "on_trace_ready": {"old": 1}}))[0].schedule == schedule


@pytest.mark.parametrize(
    ("said", "on"),
    [
        ({"_msprof_tx": True}, True),
        ({"_mstx": True, "_msprof_tx": False}, True),
        ({"_mstx": False, "_msprof_tx": True}, True),
        ({"_mstx": False}, False),
        ({}, False),
    ],
)
def test_mstx_by_either_name(tmp_path, said, on):
    assert facts_of(tmp_path, info({}, said))[0].mstx is on


def test_old_file_without_start_and_simplification(tmp_path):
    facts, issues = facts_of(tmp_path, info({}, {"_data_simplification": None, "_gc_detect_threshold": None}))
    assert (facts.data_simplification, facts.session_start_ns, facts.session_end_ns, facts.gc_threshold) == (
        False,
        None,
        None,
        None,
    )
    assert issues == {}


def test_several_files(tmp_path):
    (tmp_path / "profiler_info.json").write_text("{}")
    (tmp_path / "profiler_info_11.json").write_text("{}")
    facts, issues = facts_of(tmp_path, info(), "profiler_info_2.json")
    assert facts.rank == 2
    assert issues == {"further-files": "profiler_info_2.json was read"}


@pytest.mark.parametrize("kind", ["cpu", "cuda", "npu", "npu_sim"])
def test_device_of_our_collector(tmp_path, kind):
    facts, _ = facts_of(tmp_path, info({"activities": ["ProfilerActivity.CPU"]}, collector={"device": kind}))
    assert facts.device_kind == ("npu" if kind == "npu_sim" else kind)


def test_gpu_activity(tmp_path):
    facts, _ = facts_of(tmp_path, info({"activities": ["ProfilerActivity.CPU", "ProfilerActivity.CUDA"]}))
    assert (facts.activities, facts.device_kind) == (("CPU", "CUDA"), "cuda")


def test_mindspore_by_its_folder(tmp_path):
    folder = tmp_path / "host0_1_20250101000000000_ascend_ms"
    folder.mkdir()
    assert facts_of(folder, info())[0].framework == "mindspore"


def test_activity_without_its_folder(tmp_path):
    both = info({"activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"]})
    assert facts_of(tmp_path, both)[0].activities == ("CPU", "NPU"), "only raw data needs the folders"
    facts, quality = read_capture_facts(tmp_path, raw=True)
    assert facts.activities == ()
    assert quality["detail"].to_list() == [
        "CPU was on, but there is no FRAMEWORK folder",
        "NPU was on, but there is no PROF_* folder",
    ]
    (tmp_path / "FRAMEWORK").mkdir()
    (tmp_path / "PROF_000001_20250101000000000_ABC").mkdir()
    facts, quality = read_capture_facts(tmp_path, raw=True)
    assert (facts.activities, quality.height) == (("CPU", "NPU"), 0)


@pytest.mark.parametrize(
    "content", ["", "{", "[1]", "null", '{"config": [1], "start_info": 3}', '{"config": {"common_config": []}}']
)
def test_damaged_file_gives_defaults(tmp_path, content):
    (tmp_path / "profiler_metadata.json").write_text("[")
    facts, issues = facts_of(tmp_path, content)
    assert facts.replace(profiler_info={}) == Facts()
    assert "unreadable-settings" in issues


def test_no_file_is_said(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        facts, quality = read_capture_facts(folder)
        assert facts == Facts()
        assert quality["issue"].to_list() == ["missing-settings"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "activities",
    "schedule",
    "record_shapes",
    "_profiler_level",
    "_aic_metrics",
    "_export_type",
    "_host_sys",
    "_gc_detect_threshold",
]
SECTION = st.dictionaries(st.sampled_from(KEYS), VALUES)


@pytest.mark.slow  # half a second and more
@given(SECTION, SECTION, VALUES, VALUES, VALUES)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_anywhere(tmp_path, common, experimental, rank, start, collector):
    facts, _ = facts_of(tmp_path, info(common, experimental, rank_id=rank, start_info=start, collector=collector))
    facts.table()

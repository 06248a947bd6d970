"""Our adapter against the Python sources of real torch_npu packages (drive.py); `make test` downloads them (fetch.py)."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each version is a process with torch

HERE = Path(__file__).resolve().parent
SOURCES = Path(os.environ.get("STEPSCOPE_TORCH_NPU_SOURCES", HERE.parents[1] / ".venv" / "torch_npu"))
FOUND = sorted(path.name for path in SOURCES.iterdir() if not path.name.startswith(".")) if SOURCES.is_dir() else []
NATIVE = ("_init_profiler", "_start_profiler", "_stop_profiler", "_finalize_profiler")
# Ours are those of the documents; later versions add members.
ADDED = {"HostSystem": {"NUMA"}}

if not FOUND and os.environ.get("CI"):
    pytest.fail(f"no sources of torch_npu in {SOURCES}: run `python tests/vendor/fetch.py {SOURCES}`", pytrace=False)


@functools.cache
def drive(version: str) -> dict:
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "STEPSCOPE_COLLECTOR")}
    # Without the stand-in, which a test that imports stepscope.compat puts there.
    path = [part for part in kept.get("PYTHONPATH", "").split(os.pathsep) if part and "compat" not in part]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, HERE / "drive.py", SOURCES / version],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**kept, "PYTHONPATH": os.pathsep.join(path)},
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def says(version: str, file: str, text: str) -> bool:
    """Whether the sources of a version hold a text: patch releases have settings that later versions lack."""
    return text in (SOURCES / version / "torch_npu" / file).read_text()


if not FOUND:
    pytest.skip(f"no sources of torch_npu in {SOURCES}: `make test` downloads them", allow_module_level=True)


@pytest.mark.parametrize("version", FOUND)
def test_one_capture_with_everything_switched_on(version):
    found = drive(version)["capture"]
    assert found["tier"] == "ascend"
    assert {"FRAMEWORK", "PROF_000001_20260101000000000_ABCDEFGH", "profiler_info.json"} <= set(found["files"])
    assert ".torch_npu" not in found["files"]  # nothing of theirs is left beside ours
    # Raw only: their analysis is never asked for, and their clocks and versions become ours.
    assert found["info"]["start_info"] == {"syscnt_enable": True, "freq": 100, "start_cnt": 5000, "start_monotonic": 0}
    order = [name for name in found["native"] if name in NATIVE]
    assert order == list(NATIVE)
    config = found["config"]
    for name in ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules", "l2_cache", "msprof_tx"):
        assert config[name] is True, name
    assert (config["trace_level"], config["metrics"]) == ("Level2", "ACL_AICORE_MEMORY_BANDWIDTH")
    assert "failed" not in "\n".join(found["said"])
    assert found["native"].count("_mark_on_host") == 1


@pytest.mark.parametrize("version", FOUND)
def test_what_a_version_lacks_is_named(version):
    found = drive(version)["capture"]
    settings = ("host_sys", "mstx_domain_include", "sys_io", "sys_interconnection")
    unknown = [name for name in settings if not says(version, "profiler/experimental_config.py", f" {name}: ")]
    assert [name for name in settings if name not in found["config"]] == unknown
    named = [line for line in found["said"] if "does not know" in line]
    expected = f"WARNING torch_npu {version} does not know {', '.join(unknown)}: not recorded; update torch_npu"
    assert named == ([expected] if unknown else [])
    said = "\n".join(found["said"])
    for file, text, sentence in (
        ("profiler/profiler.py", "def enable_profiler_in_child_thread", "does not record operators of child threads"),
        ("npu/mstx.py", "def range_push", "has no mstx.range_push"),
        ("npu/mstx.py", "domain: str", "has no domains of marks"),
    ):
        assert (sentence in said) is not says(version, file, text), sentence


@pytest.mark.parametrize("version", FOUND)
def test_names_members_and_defaults(version):
    found = drive(version)["names"]
    theirs, ours = found["theirs"], found["ours"]
    for name in ("profile", "handler", "schedule"):
        assert set(theirs[name]) <= set(ours[name]), name
        common = set(theirs[name]) & set(ours[name])
        assert {key: theirs[name][key] for key in common} == {key: ours[name][key] for key in common}, name
    assert set(theirs["experimental"]) <= set(ours["experimental"])
    made = {**theirs["set"], "_export_type": ["text"]} if theirs["set"]["_export_type"] == "text" else theirs["set"]
    assert made == {key: ours["set"][key] for key in made}  # before 2.5 the export is one word
    for kind in ("ProfilerLevel", "AiCMetrics", "ExportType", "HostSystem"):
        members = {name: value for name, value in theirs.get(kind, {}).items() if name not in ADDED.get(kind, ())}
        assert members.items() <= ours[kind].items(), kind

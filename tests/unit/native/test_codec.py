# SPDX-License-Identifier: Apache-2.0
"""Where the kernels of the analyser come from, and what is said when there are none."""

from __future__ import annotations

import stat
import subprocess

import pytest

from stepscope.native import codec


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(codec.SWITCH, raising=False)
    codec._find.cache_clear()
    yield
    codec._find.cache_clear()


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler that does what a test says."""

    def make(effect):
        path = tmp_path / "c++"
        path.write_text(f"#!/bin/sh\necho x >> {tmp_path}/calls\n{effect}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("CXX", str(path))
        return lambda: len((tmp_path / "calls").read_text().splitlines())

    return make


@pytest.mark.slow  # half a second and more
def test_built_and_loaded():
    assert codec.find_codec() == "not built yet"
    reason = codec.build()
    if "no C++ compiler" in reason:
        pytest.skip(reason)
    assert reason == ""
    codec._find.cache_clear()
    assert codec.describe_codec() == "C++ kernels (built)"
    assert codec.codec() is not None


def test_switched_off(monkeypatch):
    monkeypatch.setenv(codec.SWITCH, "0")
    assert codec.codec() is None
    assert codec.describe_codec() == "polars and numpy (STEPSCOPE_KERNELS=0)"


def test_a_failure_is_remembered_and_said(compiler, monkeypatch):
    calls = compiler("echo 'no such header' >&2; exit 1")
    assert codec.build() == "c++ failed: no such header"
    assert codec.describe_codec() == "polars and numpy (c++ failed: no such header)"
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **options: pytest.fail("tried again"))
    codec.build_in_background()
    assert calls() == 1


def test_a_binary_that_does_not_work_is_not_kept(compiler):
    compiler('while [ "$1" != -o ]; do shift; done; echo broken > "$2"')
    assert "python failed" in codec.build().replace("python3", "python")
    assert codec.codec() is None


def test_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert codec.build().startswith("no C++ compiler found")
    assert codec.codec() is None


def test_a_shipped_binary_for_a_newer_system_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(codec, "_HERE", tmp_path)
    (tmp_path / "source" / codec.NAME).mkdir(parents=True)
    (tmp_path / "prebuilt").mkdir()
    (tmp_path / "prebuilt" / codec.shipped_name(tmp_path / "source" / codec.NAME)).write_bytes(b"not for this machine")
    assert "cannot be loaded" in codec.describe_codec()


def test_built_in_the_background_for_the_next_analysis(compiler, monkeypatch):
    compiler("exit 1")
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: started.append(command))
    codec.build_in_background()
    assert len(started) == 1
    monkeypatch.setenv(codec.SWITCH, "0")
    codec.build_in_background()
    assert len(started) == 1

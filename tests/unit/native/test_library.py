"""Where native libraries come from, and what is said when there is none."""

from __future__ import annotations

import os
import stat

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from stepscope.native import Library, find_library, library  # noqa: E402

COMPILER = """#!/bin/sh
case "$*" in *--version*) echo test 1.0; exit 0;; esac
echo x >> "$0.calls"
while [ "$1" != -o ]; do shift; done
{effect}
"""


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler that does what a test says; returns how often it was called to build."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "c++"

    def make(effect):
        path.write_text(COMPILER.format(effect=effect))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("CXX", str(path))
        return lambda: len((tmp_path / "c++.calls").read_text().splitlines())

    return make


def test_built_once_and_kept(compiler):
    calls = compiler('echo made > "$2"')
    trial = "import sys; assert open(sys.argv[1]).read() == 'made\\n'"
    told = []
    first, second = (find_library("observer", trial, before_build=lambda: told.append("building")) for _ in range(2))
    assert told == ["building"]
    assert isinstance(first, Library)
    assert first == second
    assert first.origin == "built"
    assert calls() == 1
    assert stat.S_IMODE(first.path.parent.stat().st_mode) == 0o700


def test_flags_of_the_user_come_last_and_make_another_library(compiler, monkeypatch):
    compiler('touch "$2"')
    plain = find_library("observer", "")
    monkeypatch.setenv("STEPSCOPE_CXXFLAGS", "-g -fsanitize=address")
    other = find_library("observer", "")
    assert isinstance(plain, Library)
    assert isinstance(other, Library)
    assert plain.path != other.path
    assert library._flags()[-2:] == ("-g", "-fsanitize=address")


def test_units_are_compiled_each_and_then_linked(compiler, monkeypatch, tmp_path):
    (tmp_path / "inner").mkdir()
    for name in ("one.cpp", "inner/one.cpp", "shared.h"):  # files of one name in two folders
        (tmp_path / name).touch()
    monkeypatch.setattr(library, "_source", lambda name: tmp_path)
    calls = compiler('case "$2" in *.o) echo unit > "$2";; *) cat "$(dirname "$2")"/*/0.o "$(dirname "$2")"/*/1.o > "$2";; esac')
    made = find_library("observer", "import sys; assert open(sys.argv[1]).read() == 'unit\\nunit\\n'")
    assert isinstance(made, Library), made
    assert calls() == 3
    assert sorted(path.name for path in made.path.parent.iterdir()) == ["libobserver.so", "lock"]


def test_compiler_that_fails(compiler):
    calls = compiler("echo no such header >&2; exit 1")
    reasons = [find_library("observer", ""), find_library("observer", "")]
    assert "no such header" in reasons[0]
    assert reasons[0] == reasons[1]  # the second time without trying again
    assert calls() == 1


def test_library_that_crashes_its_trial(compiler):
    compiler('echo made > "$2"')
    reason = find_library("observer", "import os; os.abort()")
    assert "did not pass its trial" in reason


def test_a_trial_that_crashes_once_is_not_the_librarys_fault(compiler, tmp_path):
    compiler('echo made > "$2"')
    first = tmp_path / "first"
    trial = f"import os, pathlib; p = pathlib.Path({str(first)!r}); p.exists() or (p.touch(), os.abort())"
    assert isinstance(find_library("observer", trial), Library)
    assert first.exists()


def test_no_room_for_thread_local_data_takes_the_other_variant(compiler):
    calls = compiler('echo "$@" > "$2"')
    trial = """
import sys
if 'DYNAMIC' not in sys.argv[0] and not __import__('pathlib').Path(sys.argv[1]).parent.joinpath('again').exists():
    __import__('pathlib').Path(sys.argv[1]).parent.joinpath('again').touch()
    raise OSError('cannot allocate memory in static TLS block')
"""
    assert isinstance(find_library("observer", trial), Library)
    assert calls() == 2


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert "no C++ compiler" in find_library("observer", "")


def test_cache_that_cannot_be_written(compiler, monkeypatch, tmp_path):
    compiler('echo made > "$2"')
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "could not be built" in find_library("observer", "")


def test_no_sources(monkeypatch):
    assert "not installed" in find_library("no such library", "")


def test_key_follows_the_sources(tmp_path):
    (tmp_path / "a.cpp").write_text("1")
    compiler = os.environ.get("CXX", "g++")
    try:
        first = library._key(tmp_path, compiler)
    except FileNotFoundError:
        pytest.skip("there is no C++ compiler")
    (tmp_path / "a.cpp").write_text("2")
    assert library._key(tmp_path, compiler) != first


def test_shipped_library_of_these_sources_and_this_torch_is_taken_first(compiler, tmp_path, monkeypatch):
    compiler('echo made > "$2"')
    source = library._source("observer")
    here = tmp_path / "package"
    (here / "prebuilt").mkdir(parents=True)
    monkeypatch.setattr(library, "_HERE", here)
    monkeypatch.setattr(library, "_source", lambda name: source)
    shipped = here / "prebuilt" / library.shipped_name("observer")
    (here / "prebuilt" / f"observer-older-{torch.version.git_version}-x86_64.so").write_text("of other sources")
    assert find_library("observer", "").origin == "built"
    shipped.write_text("made")
    assert find_library("observer", "") == Library(shipped, "prebuilt")


def test_without_a_compiler_there_is_a_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no C++ compiler" in find_library("observer", "")

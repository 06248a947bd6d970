"""A folder of results is whole or absent, also when its maker dies."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from stepscope.tables.whole_folder import replacing_folder


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_the_new_folder_takes_the_place_of_the_old(tmp_path):
    for text in ("first", "second"):
        with replacing_folder(tmp_path / "deep" / "out") as new:
            (new / text).write_text(text)
    assert content(tmp_path / "deep" / "out") == {"second": "second"}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    assert (tmp_path / "deep" / "out").stat().st_mode & 0o777 == 0o750


def test_a_failure_changes_nothing(tmp_path):
    with replacing_folder(tmp_path / "out") as new:
        (new / "good").write_text("good")

    def fail():
        with replacing_folder(tmp_path / "out") as new:
            (new / "bad").write_text("half")
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        fail()
    assert content(tmp_path / "out") == {"good": "good"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def dead_process() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / f".out.building-{dead_process()}").mkdir()
    (tmp_path / f".out.building-{os.getppid()}").mkdir()
    with replacing_folder(tmp_path / "out"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".out.building-{os.getppid()}", "out"]


def test_a_process_killed_between_the_renames_loses_nothing(tmp_path):
    old = tmp_path / f".out.old-{dead_process()}"
    old.mkdir()
    (old / "good").write_text("good")

    def fail():
        with replacing_folder(tmp_path / "out"):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert content(tmp_path / "out") == {"good": "good"}

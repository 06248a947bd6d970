"""A folder of results is whole or absent, also when its maker dies."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from stepscope.tables import whole_folder
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


def left_by(word: str, pid: int, machine: str | None = None) -> str:
    return f".out.{word}-{machine or whole_folder.machine()}-{pid}-0123abcd"


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / left_by("building", dead_process())).mkdir()
    (tmp_path / left_by("building", os.getppid())).mkdir()
    with replacing_folder(tmp_path / "out"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [left_by("building", os.getppid()), "out"]


def test_folders_of_other_machines_are_left_alone_until_nobody_can_need_them(tmp_path):
    # Two containers: each is process 1 of its own, and sees no process of the other's numbers.
    for name in (left_by("building", dead_process(), "00000000"), ".out.building-1"):
        (tmp_path / name).mkdir()
    aged = tmp_path / left_by("old", 1, "11111111")
    aged.mkdir()
    os.utime(aged, (0, 0))
    with replacing_folder(tmp_path / "out"):
        pass
    kept = sorted(path.name.partition("-")[0] for path in tmp_path.iterdir())
    assert kept == [".out.building", ".out.building", "out"]


def test_two_at_once_do_not_share_a_name(tmp_path):
    with replacing_folder(tmp_path / "out") as first:
        (first / "text").write_text("first")
        with replacing_folder(tmp_path / "out") as second:
            (second / "text").write_text("second")
        assert content(first) == {"text": "first"}
    assert content(tmp_path / "out") == {"text": "first"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_another_machine_finishes_between_our_two_renames(tmp_path, monkeypatch):
    target, rename, others = tmp_path / "out", os.rename, []

    def with_another(source, to):
        if to == target and not others:
            others.append(1)
            target.mkdir()
            (target / "text").write_text("theirs")
        rename(source, to)

    for text in ("before", "ours"):
        with replacing_folder(target) as new:
            (new / "text").write_text(text)
            if text == "ours":
                monkeypatch.setattr(os, "rename", with_another)
    assert others
    assert content(target) == {"text": "ours"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


MAKER = """
import os, sys
from pathlib import Path
from stepscope.tables import whole_folder
whole_folder.machine = lambda: sys.argv[2]  # as on a machine of its own, where every process is number 1
os.getpid = lambda: 1
for turn in range(40):
    with whole_folder.replacing_folder(Path(sys.argv[1])) as new:
        for name in "abc":
            (new / name).write_text(f"{sys.argv[2]} {turn}")
"""


@pytest.mark.slow  # half a second and more
def test_two_machines_end_with_one_whole_folder(tmp_path):
    makers = [subprocess.Popen([sys.executable, "-c", MAKER, str(tmp_path / "out"), name]) for name in ("00000000", "11111111")]
    assert [maker.wait(60) for maker in makers] == [0, 0]
    assert len(set(content(tmp_path / "out").values())) == 1
    assert sorted(content(tmp_path / "out")) == ["a", "b", "c"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_process_killed_between_the_renames_loses_nothing(tmp_path):
    old = tmp_path / left_by("old", dead_process())
    old.mkdir()
    (old / "good").write_text("good")

    def fail():
        with replacing_folder(tmp_path / "out"):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert content(tmp_path / "out") == {"good": "good"}

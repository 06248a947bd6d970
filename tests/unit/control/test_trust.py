"""Which folders may ask for captures, and where captures may go."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from stepscope.control import trust


def test_a_folder_of_ones_own(tmp_path):
    assert trust.distrust_of_folder(tmp_path) is None


def test_a_folder_that_can_be_swapped_from_above(tmp_path):
    (tmp_path / "open" / "control").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    assert trust.distrust_of_folder(tmp_path / "open" / "control") == (
        f"{tmp_path / 'open'} is writable by everyone; run chmod o-w {tmp_path / 'open'}"
    )
    (tmp_path / "open").chmod(0o1777)  # as /tmp is
    assert trust.distrust_of_folder(tmp_path / "open" / "control") is None


def test_a_folder_of_somebody_else(tmp_path, monkeypatch):
    owner = tmp_path.stat().st_uid or 12345
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if tmp_path.stat().st_uid == 0:  # root may ask anybody
        assert trust.distrust_of_folder(tmp_path) is None
        os.chown(tmp_path, owner, -1)
    assert trust.distrust_of_folder(tmp_path) == f"{tmp_path} belongs to another user (uid {owner}); use a folder of your own"


@pytest.mark.parametrize("name", ["status", "log", ""])
def test_links(tmp_path, name):
    (tmp_path / "real").mkdir()
    place = tmp_path / "real" / name if name else tmp_path / "control"
    place.symlink_to(tmp_path / "real", target_is_directory=True)
    folder = tmp_path / "real" if name else place
    assert trust.distrust_of_folder(folder) == f"{place} is a symbolic link; use the real folder"


@pytest.mark.parametrize("name", ["status", "log", ""])
def test_what_cannot_be_looked_at_is_not_trusted(tmp_path, monkeypatch, name):
    place, lstat = os.fspath(tmp_path / name), os.lstat

    def refuse(path):
        if path == place:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return lstat(path)

    monkeypatch.setattr(os, "lstat", refuse)
    assert trust.distrust_of_folder(tmp_path) == f"{tmp_path} cannot be checked: Permission denied"


def test_only_plain_files_are_read():
    assert trust.distrust_of_file("f", SimpleNamespace(st_mode=0o010640)) == "f is not a regular file"
    assert trust.distrust_of_file("f", SimpleNamespace(st_mode=0o100640)) is None


def test_where_captures_may_go(tmp_path, monkeypatch):
    for name in ("job", "home", "data"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "job")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(trust.ROOTS, f"{tmp_path / 'data'}{os.pathsep}")
    for inside in ("./", "out", "~/runs", str(tmp_path / "data" / "x"), str(tmp_path / "home")):
        assert trust.outside_roots(inside) is None, inside
    for outside in ("..", "../job2", str(tmp_path), "/", "~nobody-of-this-name/x"):
        assert trust.outside_roots(outside) is not None, outside


def test_a_job_in_the_root_folder_does_not_allow_everything(monkeypatch, tmp_path):
    monkeypatch.chdir("/")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(trust.ROOTS, raising=False)
    assert trust.outside_roots("./") is None
    assert trust.outside_roots("etc/x") is not None


def test_a_user_without_a_home(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert trust.outside_roots("out") is None

"""Files are whole or absent, whatever goes wrong while they are written."""

from __future__ import annotations

import errno
import io
import os
import signal

import polars as pl
import pytest

from stepscope.errors import CaptureError
from stepscope.render import atomic
from stepscope.render.atomic import make_output_folder, replace_together, replacing, write_rows


def test_content_appears_under_the_final_name_with_its_mode(tmp_path):
    with replacing(tmp_path / "a.csv") as handle:
        handle.write(b"x")
        assert not (tmp_path / "a.csv").exists()
    assert (tmp_path / "a.csv").read_bytes() == b"x"
    assert os.stat(tmp_path / "a.csv").st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("problem", [ValueError("ours"), KeyboardInterrupt()])
def test_a_failure_keeps_the_old_file_and_leaves_no_part(tmp_path, problem):
    (tmp_path / "a.csv").write_bytes(b"old")

    def fail() -> None:
        with replacing(tmp_path / "a.csv") as handle:
            handle.write(b"half")
            raise problem

    with pytest.raises(type(problem)):
        fail()
    assert (tmp_path / "a.csv").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_full_disk_says_what_is_kept(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"old")
    with pytest.raises(CaptureError) as raised, replacing(tmp_path / "a.csv"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert raised.value.what == "no space left to write a.csv"
    assert raised.value.where == str(tmp_path)
    assert raised.value.cause == "the disk is full; the file of that name from before is unchanged"
    assert (tmp_path / "a.csv").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_files_that_belong_together_appear_together(tmp_path):
    def contents():
        for name in ("a", "b"):
            assert not list(tmp_path.glob("[ab]"))
            yield tmp_path / name, name.encode()

    assert replace_together(contents()) == [tmp_path / "a", tmp_path / "b"]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "a", "b": "b"}
    assert os.stat(tmp_path / "a").st_mode & 0o777 == 0o640


@pytest.mark.parametrize("problem", [ValueError("ours"), KeyboardInterrupt()])
def test_a_failure_between_files_that_belong_together_keeps_all_old_ones(tmp_path, problem):
    def contents():
        yield tmp_path / "a", b"new"
        yield tmp_path / "b", b"new"
        raise problem

    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"old")
    with pytest.raises(type(problem)):
        replace_together(contents())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old", "b": b"old"}


class Interrupted(BaseException):
    pass


def test_a_signal_comes_before_or_after_all_files_that_belong_together(tmp_path, monkeypatch):
    """At any moment while they get their names; one that came between two of them would be seen in one of the first tries."""
    armed, chmod = False, os.chmod
    places = [tmp_path / str(number) for number in range(8)]

    def interrupt(number, frame):
        if armed:
            raise Interrupted

    def begin_after_the_last(partial, mode):
        chmod(partial, mode)
        if os.path.basename(partial).startswith(f".{places[-1].name}."):
            signal.setitimer(signal.ITIMER_REAL, 1e-5 * (attempt + 1))

    monkeypatch.setattr(atomic.os, "chmod", begin_after_the_last)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for attempt in range(20):
            try:
                armed = True
                replace_together([(place, b"%d" % attempt) for place in places])
                armed = False
            except Interrupted:
                armed = False
            assert len({place.read_bytes() for place in places if place.exists()}) <= 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(list(tmp_path.iterdir())) == len(places)


def test_the_file_that_cannot_get_its_name_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(CaptureError, match="cannot write a\n"):
        replace_together([(tmp_path / "a", b"x"), (tmp_path / "b", b"y")])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_read_only_folder_is_named(tmp_path, monkeypatch):
    def refuse(**options):
        raise PermissionError(errno.EACCES, "Permission denied")

    # chmod does not stop the administrator, under whose account tests may run.
    monkeypatch.setattr(atomic.tempfile, "mkstemp", refuse)
    with pytest.raises(CaptureError) as raised, replacing(tmp_path / "a.csv"):
        pass
    assert str(raised.value) == (
        f"cannot write a.csv\n  where: {tmp_path}\n  cause: permission denied; no file of that name was left behind\n"
        "  do this: choose a folder that you may write to for the output"
    )


def test_a_folder_that_is_a_file_is_an_error_with_its_place(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CaptureError) as raised, replacing(tmp_path / "file" / "a.csv"):
        pass
    assert raised.value.where == str(tmp_path / "file")


def test_links_are_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(CaptureError, match="symbolic link link"), replacing(tmp_path / "link" / "a.csv"):
        pass
    (tmp_path / "real" / "a.csv").symlink_to("/dev/null")
    with pytest.raises(CaptureError, match=r"symbolic link a\.csv"), replacing(tmp_path / "real" / "a.csv"):
        pass
    with pytest.raises(CaptureError, match="symbolic link link"):
        make_output_folder(tmp_path / "link" / "below")


def test_folders_are_closed_to_others(tmp_path):
    created = make_output_folder(tmp_path / "one" / "two")
    assert created.is_dir()
    assert {os.stat(folder).st_mode & 0o777 for folder in (created, created.parent)} == {0o750}
    assert make_output_folder(created) == created


@pytest.mark.parametrize(
    ("lines", "written"),
    [
        pytest.param(pl.Series(["a\n", "bc\n", "é\n"]), "a\nbc\né\n", id="whole"),
        pytest.param(
            pl.Series(["a\n", "bc\n", "a long text that is not stored inline\n", "d\n"])[1:3],
            "bc\na long text that is not stored inline\n",
            id="slice",
        ),
        pytest.param(pl.concat([pl.Series(["a"]), pl.Series(["b"])], rechunk=False), "ab", id="two-chunks"),
        pytest.param(pl.Series([], dtype=pl.String), "", id="empty"),
    ],
)
def test_rows_are_written_end_to_end(lines, written):
    handle = io.BytesIO()
    write_rows(handle, lines)
    assert handle.getvalue().decode() == written

"""Files are whole or absent, whatever goes wrong while they are written."""

from __future__ import annotations

import errno
import io
import os

import polars as pl
import pytest

from stepscope.errors import CaptureError
from stepscope.render import atomic
from stepscope.render.atomic import make_output_folder, replacing, write_rows


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

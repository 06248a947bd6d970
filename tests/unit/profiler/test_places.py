"""Where captures go, their names and file modes (docs/formats/profiler-api.md 8, 9; docs/formats/framework.md 1)."""

from __future__ import annotations

import gc
import os
import re
import socket
import stat
from pathlib import Path

import pytest

from stepscope.collect import paths
from stepscope.errors import CaptureError
from stepscope.profiler import _KinetoProfile, profile, tensorboard_trace_handler
from stepscope.profiler._profiler_path_creator import ProfPathCreator


@pytest.fixture(autouse=True)
def _fresh_path_creator(monkeypatch):
    monkeypatch.setattr(ProfPathCreator, "_only", None)


@pytest.fixture
def captured(noting_tier, tmp_path):
    def run(prof):
        with prof:
            pass
        return Path(prof.prof_if.prof_path).parent.relative_to(tmp_path)

    return run


def raw_handler(*arguments, **options):
    return tensorboard_trace_handler(*arguments, analyse_flag=False, **options)


@pytest.mark.parametrize("work_path", [False, True])
@pytest.mark.parametrize(
    ("make", "plain", "with_work_path"),
    [
        (lambda: profile(on_trace_ready=raw_handler("result")), "result", "result"),
        (lambda: profile(on_trace_ready=raw_handler()), ".", "work/profiling_data"),
        (lambda: profile(on_trace_ready=lambda prof: None), ".", "."),
        (lambda: profile(), "export_only_prof_dir", "work/profiling_data"),
        (lambda: _KinetoProfile(), "export_only_prof_dir", "work/profiling_data"),
    ],
    ids=["handler-with-folder", "handler", "custom-handler", "no-handler", "kineto"],
)
def test_parent_folder(make, plain, with_work_path, work_path, captured, tmp_path, monkeypatch):
    if work_path:
        monkeypatch.setenv("ASCEND_WORK_PATH", str(tmp_path / "work"))
    assert captured(make()) == Path(with_work_path if work_path else plain)


def test_only_kineto_profile_removes_its_capture(captured, tmp_path, monkeypatch):
    captured(profile())
    captured(_KinetoProfile())
    gc.collect()
    assert len(list((tmp_path / "export_only_prof_dir").iterdir())) == 1
    monkeypatch.setenv("ASCEND_WORK_PATH", str(tmp_path / "work"))
    captured(_KinetoProfile())
    gc.collect()
    assert len(list((tmp_path / "work" / "profiling_data").iterdir())) == 1


def test_path_creator_serves_custom_handlers_only(captured):
    ProfPathCreator().init(worker_name="w", dir_name="mine")
    assert captured(profile(on_trace_ready=lambda prof: None)) == Path("mine")
    assert Path(ProfPathCreator().get_prof_dir()).name.startswith("w_")
    assert captured(profile()) == Path("export_only_prof_dir")
    assert captured(profile(on_trace_ready=raw_handler("other"))) == Path("other")


def test_two_handlers_made_before_use_do_not_mix(captured):
    first, second = raw_handler("a"), raw_handler("b")
    assert captured(profile(on_trace_ready=first)) == Path("a")
    assert captured(profile(on_trace_ready=second)) == Path("b")


@pytest.mark.parametrize("worker", [None, "rank3"])
def test_name(worker, captured, tmp_path):
    captured(profile(on_trace_ready=raw_handler("r", worker)))
    (made,) = (tmp_path / "r").iterdir()
    assert re.fullmatch(rf"{worker or re.escape(socket.gethostname())}_{os.getpid()}_\d{{17}}_ascend_pt", made.name)


def test_a_taken_millisecond_is_skipped(tmp_path):
    first = paths.new_capture_folder(tmp_path, "w", now_ms=1_800_000_000_999)
    second = paths.new_capture_folder(tmp_path, "w", now_ms=1_800_000_000_999)
    assert first.name[-13:-10] == "999"
    assert second.name[-13:-10] == "000"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes(umask, captured, tmp_path):
    before = os.umask(umask)
    try:
        captured(profile(on_trace_ready=raw_handler("a/b")))
    finally:
        os.umask(before)
    made = [tmp_path / "a", *(tmp_path / "a").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o750 & ~umask}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()} == {0o640 & ~umask}


def test_folders_that_exist_keep_their_mode(captured, tmp_path):
    (tmp_path / "a").mkdir(mode=0o755)
    captured(profile(on_trace_ready=raw_handler("a")))
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


def test_longest_worker_name_fits(captured, tmp_path, capsys):
    longest = paths.longest_worker_name()
    captured(profile(on_trace_ready=raw_handler("r", "w" * longest)))
    assert len(next((tmp_path / "r").iterdir()).name) == 255
    handler = raw_handler("r", "w" * (longest + 1))
    assert handler.worker_name is None
    assert capsys.readouterr().err.count("WARNING") == 1


@pytest.mark.parametrize(
    "given",
    [{"dir_name": ""}, {"dir_name": 3}, {"worker_name": ""}, {"worker_name": "a/b"}, {"analyse_flag": 1}, {"async_mode": "no"}],
)
def test_wrong_handler_arguments(given, capsys):
    handler = tensorboard_trace_handler(**given)
    assert (handler.dir_name, handler.worker_name, handler.analyse, handler.background) == (None, None, True, False)
    assert capsys.readouterr().err.count("WARNING") == 1


@pytest.mark.parametrize("kind", ["a file", "below a file", "a long name", "a long path"])
def test_impossible_folders_record_nothing(kind, noting_tier, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    given = {"a file": "file", "below a file": "file/x", "a long name": "n" * 256, "a long path": "/".join(["d" * 200] * 21)}[kind]
    called = []
    handler = raw_handler(given)
    prof = profile(on_trace_ready=handler)
    prof.start()
    for _ in range(2):
        prof.step()
    prof.stop()
    assert not called
    assert noting_tier == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert capsys.readouterr().err.count("WARNING") == 1


def test_path_rules(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.resolve_path("~/x") == tmp_path / "x"
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert paths.resolve_path(tmp_path / "link") == tmp_path / "real"
    assert "symbolic link" in capsys.readouterr().err
    assert paths.resolve_path(str(tmp_path / "性能-1.x y")) == tmp_path / "性能-1.x y"
    assert capsys.readouterr().err == ""
    paths.resolve_path(str(tmp_path / "a;b"))
    assert capsys.readouterr().err.count("WARNING") == 1
    with pytest.raises(CaptureError, match="empty"):
        paths.resolve_path("")

"""Processes of our own: each request is answered or fails alone."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from stepscope.child_process import ProcessEnded, answers, command, how_ended, report

# Each case starts small interpreters without the columnar engine.
SERVER = """
import os, sys, time
from pathlib import Path
from stepscope.child_process import serve

def handle(request):
    if "die" in request:
        sys.stderr.write("last words\\n")
        sys.stderr.flush()
        os.kill(os.getpid(), request["die"])
    if "hang" in request:
        work = Path(request["hang"])
        try:
            work.touch()  # from now on it may be ended
            time.sleep(600)
        finally:
            work.unlink()
    print("a library says something")
    return {"twice": 2 * request["number"], "pid": os.getpid()}

def run():
    return serve(handle)
"""


@pytest.fixture
def server(tmp_path, monkeypatch) -> str:
    (tmp_path / "the_server.py").write_text(SERVER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "the_server:run"


def test_requests_are_answered_by_as_many_processes_as_asked(server):
    found = {number: answer() for number, answer in answers(server, [{"number": number} for number in range(6)], 2)}
    assert [found[number]["twice"] for number in range(6)] == [0, 2, 4, 6, 8, 10]
    assert len({answer["pid"] for answer in found.values()}) <= 2


def test_a_process_that_dies_costs_one_request(server):
    requests = [{"number": 1}, {"number": 2, "die": int(signal.SIGKILL)}, {"number": 3}, {"number": 4}]
    good, bad = {}, {}
    for number, answer in answers(server, requests, 1):
        try:
            good[number] = answer()["twice"]
        except ProcessEnded as problem:
            bad[number] = str(problem)
    assert good == {0: 2, 2: 6, 3: 8}
    assert bad == {1: "signal SIGKILL: last words"}


def test_an_interrupted_caller_leaves_no_process_and_nothing_half_written(server, tmp_path):
    work = tmp_path / "half"

    def interrupted() -> None:
        for _number, answer in answers(server, [{"number": 1}, {"number": 2, "hang": str(work)}], 2):
            pid = answer()["pid"]
            while not work.exists():
                assert Path(f"/proc/{pid}").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not work.exists()


def test_the_package_is_found_where_this_process_found_it():
    text = command("stepscope.worker:main", "{}")[2]
    assert repr(str(Path(how_ended.__code__.co_filename).parents[1])) in text
    assert command("stepscope.worker:main", "{}")[0] == sys.executable


def test_lines_that_are_no_report():
    assert [report(line) for line in (b'{"ok": true}\n', b"[1]\n", b"polars says\n", b"\xff\n")] == [{"ok": True}, {}, {}, {}]


def test_exit_codes_in_words():
    assert [how_ended(code) for code in (3, -9, -99)] == ["exit code 3", "signal SIGKILL", "signal 99"]

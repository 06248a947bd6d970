"""The process that loads the analyser while steps are recorded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from stepscope import child_process
from stepscope.collect import analysis_process
from stepscope.collect.analysis_process import AnalysisProcess, prepare_analysis

ANSWER = """import sys
asked = sys.argv[1:] or sys.stdin.readlines()
if asked: print('{"ok": true, "files": ["by %s"]}' % ("argument" if sys.argv[1:] else "pipe"))
"""


@pytest.fixture
def started(monkeypatch):
    """The entries of the processes that were started; these answer without doing anything."""
    entries = []

    def command(entry, *arguments):
        entries.append(entry)
        waits = entry.endswith("wait_for_request")
        return [sys.executable, "-c", ANSWER, *(() if waits else arguments)]

    analysis_process._warm.end()  # one of an earlier test may wait
    monkeypatch.setattr(child_process, "command", command)
    yield entries
    analysis_process._warm.end()


def test_the_process_that_waits_gets_the_request(started):
    prepare_analysis()
    prepare_analysis()
    assert AnalysisProcess({"do": "analyse"}).wait().files == ("by pipe",)
    assert started == ["stepscope.child_process:wait_for_request"]
    assert AnalysisProcess({"do": "analyse"}).wait().files == ("by argument",), "it serves one request"


def test_one_that_has_ended_is_replaced(started):
    prepare_analysis()
    process, _ = analysis_process._warm._waiting
    process.kill()
    process.wait()
    assert AnalysisProcess({"do": "analyse"}).wait().files == ("by argument",)


def test_a_forked_process_does_not_keep_it_waiting(started):
    prepare_analysis()
    child = os.fork()
    if not child:
        os._exit(0 if analysis_process._warm._waiting is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert AnalysisProcess({"do": "analyse"}).wait().files == ("by pipe",)


@pytest.mark.parametrize(("line", "code"), [(b"5\n", 5), (b"", 0)])
def test_a_line_is_the_request_and_without_one_there_is_none(line, code):
    command = child_process.command("stepscope.child_process:wait_for_request", "builtins:int", "json", "no_such_module")
    assert subprocess.run(command, input=line, check=False).returncode == code

# SPDX-License-Identifier: Apache-2.0
"""Whoever makes the digests, the output is the same byte for byte: this process, others, a Dask cluster that loses a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import stepscope
from stepscope.cli import main
from stepscope.cluster import files, run
from stepscope.cluster.read import dask_engine, engine, text_ahead
from stepscope.cluster.read.dask_engine import _mapped, read_dask
from stepscope.cluster.read.memory import estimate
from stepscope.cluster.read.reading import Options, Outcome
from stepscope.cluster.run import load
from stepscope.cluster.simulate import Fault, Plan, record
from stepscope.cluster.simulate.captures import write_captures
from stepscope.errors import CaptureError

RANKS = 12


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    recording = record(Plan("ddp", dp=RANKS, micro=2, layers=1), 3, 4, Fault("frequency", 5, 1.4))
    write_captures(folder, recording, "kineto")
    return folder


def output(capfd, folder, *arguments):
    """The JSON of the command."""
    capfd.readouterr()
    assert main(["cluster", str(folder), "--no-cache", "--json", "-", *map(str, arguments)]) == 0
    return capfd.readouterr().out


def test_the_number_of_processes_changes_nothing(run_folder, capfd, tmp_path):
    written = []
    for number, workers in enumerate((1, 2)):
        text = output(capfd, run_folder, "--workers", workers, "--digests", tmp_path / str(number))
        written.append((text, {path.name: path.read_bytes() for path in (tmp_path / str(number)).iterdir()}))
    assert written[0] == written[1]
    assert '"ranks": [\n        5\n      ]' in written[0][0]


def test_a_second_process_writes_the_same_files(tmp_path, capfd, monkeypatch):
    write_captures(tmp_path / "run", record(Plan("megatron", tp=1, pp=2, dp=2, micro=2, layers=1), 2, 1), "text")
    torn = next((tmp_path / "run").glob("*_1001_*")) / "ASCEND_PROFILER_OUTPUT" / "communication_matrix.json"
    torn.write_bytes(torn.read_bytes()[:100])
    monkeypatch.setattr(text_ahead, "MANY", 4)
    read, written = files._read, []
    for workers in (1, 8):
        text = output(capfd, tmp_path / "run", "--workers", workers, "--out", tmp_path / str(workers))
        folder = tmp_path / str(workers) / files.FOLDER
        written.append((text, {path.name: path.read_bytes() for path in folder.iterdir()}))
        monkeypatch.setattr(files, "_read", lambda *_: pytest.fail("this process has read them, too"))
    assert written[0] == written[1]
    assert len(written[0][1]) == 4
    assert "not valid JSON" in written[0][0]
    # When the other process is lost, this one does its work.
    monkeypatch.setattr(files, "_read", read)
    begin = text_ahead.TextAhead.read
    monkeypatch.setattr(text_ahead.TextAhead, "read", lambda self, paths: (begin(self, paths), self._worker.process.kill()))
    output(capfd, tmp_path / "run", "--out", tmp_path / "lost")
    assert {path.name: path.read_bytes() for path in (tmp_path / "lost" / files.FOLDER).iterdir()} == written[0][1]


def test_the_files_are_made_while_the_run_is_analysed_and_written_then(tmp_path, capfd, monkeypatch):
    write_captures(tmp_path / "run", record(Plan("ddp", dp=4, layers=1), 2, 1), "text")
    monkeypatch.setattr(text_ahead, "MANY", 4)
    analysed, seen = run.analyse_run, []

    def after_the_files(*arguments):
        (ahead,) = started
        seen.append(ahead.prepared())
        assert not (tmp_path / "out").exists()
        return analysed(*arguments)

    started, start = [], text_ahead.TextAhead.__enter__
    monkeypatch.setattr(text_ahead.TextAhead, "__enter__", lambda self: started.append(self) or start(self))
    monkeypatch.setattr(run, "analyse_run", after_the_files)
    output(capfd, tmp_path / "run", "--out", tmp_path / "out")
    assert seen == [([], True)]
    assert len(list((tmp_path / "out" / files.FOLDER).iterdir())) == 4


@pytest.mark.parametrize("fault", ["analysis", "baseline", "Ctrl-C", "no rank can be read"])
def test_a_command_that_fails_writes_no_files(fault, tmp_path, capfd, monkeypatch):
    write_captures(tmp_path / "run", record(Plan("ddp", dp=4, layers=1), 2, 1), "text")
    monkeypatch.setattr(text_ahead, "MANY", 4)
    before, words = text_ahead.TextAhead.prepare, []

    def prepare_and_wait(self, captures):
        before(self, captures)
        assert self.prepared() is not None

    def fail(*arguments):
        raise KeyboardInterrupt if fault == "Ctrl-C" else CaptureError("no")

    monkeypatch.setattr(text_ahead.TextAhead, "prepare", prepare_and_wait)
    if fault == "baseline":
        words = ["--baseline", str(tmp_path / "nowhere")]
    elif fault == "no rank can be read":
        for metadata in (tmp_path / "run").glob("*_ascend_pt/profiler_metadata.json"):
            metadata.write_text("{")
    else:
        monkeypatch.setattr(run, "analyse_run", fail)
    code = main(["cluster", str(tmp_path / "run"), "--no-cache", "--out", str(tmp_path / "out"), *words])
    assert code == (130 if fault == "Ctrl-C" else 2), capfd.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("there", ["a database too", "no times of steps"])
def test_captures_without_all_text_files_are_left_to_this_process(there, tmp_path):
    write_captures(tmp_path / "run", record(Plan("ddp", dp=2, layers=1), 2, 1), "text")
    paths = sorted(map(str, (tmp_path / "run").glob("*_ascend_pt")))
    folder = Path(paths[1]) / "ASCEND_PROFILER_OUTPUT"
    if there == "a database too":
        (folder / "analysis.db").write_bytes(b"")
        (folder / "ascend_pytorch_profiler_1.db").write_bytes(b"")
    else:
        (folder / "step_trace_time.csv").unlink()
    (tmp_path / "out").mkdir()
    with text_ahead.TextAhead() as ahead:
        assert ahead.prepared() is None  # nobody has asked
        ahead.read(paths)
        ahead.prepare({0: paths[:1], 1: paths[1:]})
        assert ahead.prepared() is None
        ahead.read(paths[:1])
        ahead.prepare({0: paths[:1]})
        assert ahead.prepared() == ([], True)
        assert not list((tmp_path / "out").iterdir())
        assert len(ahead.write(tmp_path / "out")) == 4


def test_requests_longer_than_a_pipe_are_not_waited_for(tmp_path):
    """The process reads a capture that is not there yet."""
    folder = tmp_path / "a_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "step_trace_time.csv")
    path = str(folder.parent)
    (tmp_path / "out").mkdir()
    with text_ahead.TextAhead() as ahead:
        # Only where the test fails: who waits for the pipe is freed.
        late = threading.Timer(30, ahead._worker.process.kill)
        late.start()
        ahead.read([path])
        ahead.prepare({rank: [path] for rank in range(20_000)})
        (folder / "step_trace_time.csv").write_text("Step,Computing\n1,2.5\n")
        late.cancel()
        assert ahead.prepared() == ([], True)
        assert ahead.write(tmp_path / "out")


def test_what_needs_more_memory_than_a_worker_has_is_read_alone(run_folder, monkeypatch):
    paths = sorted(map(str, run_folder.glob("*.json")))
    at_once = []

    def read(jobs, some, options):
        at_once.append((jobs, len(some)))
        return iter([Outcome(path, None) for path in some])

    monkeypatch.setattr(engine, "_read_by", read)
    big = max(map(estimate, paths))
    assert big == 4 * max(Path(path).stat().st_size for path in paths)
    assert len(list(engine.read_local(paths, Options(), 3, big - 1))) == RANKS
    alone = sum(estimate(path) == big for path in paths)
    assert at_once == [(1, 1)] * alone + [(3, RANKS - alone)]


@pytest.mark.parametrize(
    ("path", "there"),
    [
        pytest.param("/home/me/runs/a", "/mnt/runs/a", id="below"),
        pytest.param("/home/me/runs", "/mnt/runs", id="itself"),
        pytest.param("/home/me/runs2/a", "/home/me/runs2/a", id="another-folder-of-a-similar-name"),
    ],
)
def test_paths_on_workers(path, there):
    assert _mapped(path, [("/home/me/runs/", "/mnt/runs")]) == there


def test_an_interrupt_keeps_what_is_finished(run_folder, capfd, tmp_path, monkeypatch):
    for path in list(run_folder.glob("*.json"))[:4]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    read, seen = engine.read_digests, []

    def interrupted(paths, options):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.extend(paths)
        return read(paths, options)

    monkeypatch.setattr(engine, "read_digests", interrupted)
    assert main(["cluster", str(tmp_path), "--workers", "1"]) == 130
    assert "the next run continues there" in capfd.readouterr().err
    assert len(list(tmp_path.glob(".*.arrow"))) == 2


def test_no_scheduler(run_folder, capfd, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(dask_engine, "WAIT_SECONDS", 0.5)
    assert main(["cluster", str(run_folder), "--scheduler", "tcp://127.0.0.1:9"]) == 2
    assert "no Dask scheduler answers" in capfd.readouterr().err


class Cluster:
    """A real scheduler and real workers on loopback."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(folder / "scheduler.json"))
        self.workers = [self._worker(number) for number in range(3)]
        until = time.monotonic() + 120
        while not (folder / "scheduler.json").exists():
            assert time.monotonic() < until, (folder / "0.log").read_text()
            time.sleep(0.1)
        import json

        self.address = json.loads((folder / "scheduler.json").read_text())["address"]

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        file = str(self._folder / "scheduler.json")
        return self._start(
            "worker", "--scheduler-file", file, "--nthreads", "1", "--no-nanny", "--name", f"w{number}",
            "--local-directory", str(self._folder),
        )  # fmt: skip

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        variables = {**os.environ, "PYTHONPATH": str(Path(stepscope.__file__).parents[1])}
        with (self._folder / f"{len(self.processes)}.log").open("wb") as log:
            command = [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:], "--no-dashboard"]
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=variables, cwd=self._folder))
        return self.processes[-1]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


@pytest.fixture(scope="module")
def dask(tmp_path_factory):
    pytest.importorskip("distributed")
    cluster = Cluster(tmp_path_factory.mktemp("dask"))
    yield cluster
    cluster.close()


@pytest.mark.slow  # starts a scheduler and three workers
def test_a_dask_cluster_that_loses_a_worker_gives_the_same_bytes(run_folder, dask, capfd, tmp_path):
    here = output(capfd, run_folder, "--workers", 1, "--digests", tmp_path / "here")
    killed = threading.Event()

    def losing(paths, options):
        for outcome in read_dask(paths, options, dask.address):
            if not killed.is_set():  # the first result is there, eleven are not
                dask.workers[1].send_signal(signal.SIGKILL)
                dask.workers[1].wait()
                killed.set()
            yield outcome

    loaded = load([run_folder], options=Options(cache=False), engine=losing)
    assert killed.is_set()
    assert loaded.digests.ranks == list(range(RANKS))
    assert loaded.problems == []
    there = output(capfd, run_folder, "--scheduler", dask.address, "--digests", tmp_path / "there")
    assert there == here
    for path in (tmp_path / "here").iterdir():
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes()
    local = load([run_folder], options=Options(cache=False))
    for name, frame in local.digests.frames.items():
        assert frame.equals(loaded.digests[name]), name


@pytest.mark.slow  # needs the workers of the test above
def test_dask_workers_of_another_version_are_refused_and_paths_are_mapped(run_folder, dask, monkeypatch):
    moved = [(f"/elsewhere{run_folder}", str(run_folder))]
    paths = [f"/elsewhere{path}" for path in sorted(run_folder.glob("*.json"))[:2]]
    found = list(read_dask([*paths, "/nowhere/rank-0.pt.trace.json"], Options(cache=False), dask.address, moved))
    assert {one.path for one in found if one.data} == set(paths)
    assert [bool(one.error) for one in found if one.path.startswith("/nowhere")] == [True]
    monkeypatch.setattr(dask_engine, "__version__", "0.0.1")
    with pytest.raises(CaptureError, match="Dask workers have another stepscope"):
        list(read_dask(paths, Options(cache=False), dask.address))

"""Two ranks that train while `stepscope ctl` drives them and things go wrong around them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import stepscope
from stepscope.cli import main

# Looked for, not imported: this process needs no torch.
pytestmark = [
    pytest.mark.slow,  # two training processes
    pytest.mark.skipif(find_spec("torch") is None, reason="collecting needs torch"),
]

# Knows nothing of a profiler. What the folder holds steers it: `full` fills the disk, `end` ends training.
TRAIN = """
import os, time
from pathlib import Path
import torch
model = torch.nn.Linear(4, 4)
optimizers = [torch.optim.SGD(model.parameters(), lr=0.01), torch.optim.Adam(model.parameters())]
steps = 0
while not Path("end").exists():
    os.environ["STEPSCOPE_MIN_FREE_BYTES"] = str(1 << 60) if Path("full").exists() else "0"
    model(torch.ones(2, 4)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
    steps += 1
    time.sleep(0.02)
print("trained", steps)
"""
PATIENCE = 180


class Job:
    def __init__(self, folder, capsys):
        self.folder, self.watched, self._capsys = folder, folder / "watched", capsys
        (folder / "train.py").write_text(textwrap.dedent(TRAIN))
        self.ranks = [self._process(rank) for rank in (0, 1)]

    def _process(self, rank):
        return subprocess.Popen(
            [sys.executable, "train.py"],
            cwd=self.folder,
            env={
                **os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "PROF_CONFIG_PATH": str(self.watched), "OMP_NUM_THREADS": "1",
                "STEPSCOPE_POLL_SECONDS": "0.1", "KINETO_LOG_LEVEL": "99",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip

    def ctl(self, *arguments):
        code = main(["ctl", str(self.watched), *arguments, "--json"])
        return code, [json.loads(line) for line in self._capsys.readouterr().out.splitlines()]

    def until(self, holds):
        """The answers of the ranks, as soon as they are as wanted."""
        until = time.monotonic() + PATIENCE
        while True:
            ranks = self.ctl("status")[1]
            if len(ranks) == 2 and holds(ranks):
                return ranks
            assert time.monotonic() < until, ranks
            assert all(process.poll() in (None, 0, -signal.SIGKILL) for process in self.ranks)
            time.sleep(0.2)

    def log(self, begin, rank):
        return "".join(path.read_text() for path in (self.watched / "log").glob(f"{begin}*_rank_{rank}.log"))


@pytest.fixture
def job(tmp_path, capsys):
    made = Job(tmp_path, capsys)
    yield made
    for process in made.ranks:
        process.kill()
        process.communicate()


def steps(answer):
    return stepscope.open(Path(answer["capture"])).steps["step"].to_list()


def in_shared_memory():
    return {name for name in os.listdir("/dev/shm") if "Dynamic" in name or "stepscope" in name}


def test_a_job_is_driven_from_outside_whatever_happens_around_it(job, tmp_path):
    before = in_shared_memory()
    job.until(lambda ranks: all(rank["state"] == "idle" and rank["step"] > 5 for rank in ranks))
    code, ranks = job.ctl("start", "--steps", "2", "--shapes", "--wait", "--out", str(tmp_path / "out"))
    assert (code, [rank["state"] for rank in ranks]) == (0, ["done", "done"])
    assert len(steps(ranks[0])) == 2
    assert steps(ranks[0]) == steps(ranks[1])

    file = job.watched / "profiler_config.json"
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    job.until(lambda ranks: all(rank["state"] == "refused" and "is not valid JSON" in rank["what"] for rank in ranks))
    file.write_text(whole)  # the second half; its step has passed long ago
    job.until(lambda ranks: all("has passed" in rank["what"] and not rank["problem"] for rank in ranks))
    file.unlink()
    job.until(lambda ranks: all("is missing" in (rank["problem"] or "") for rank in ranks))
    file.write_text("[1, 2]")
    job.until(lambda ranks: all("is not a JSON object" in rank["what"] for rank in ranks))
    for said in ("is not valid JSON", "is missing", "is not a JSON object"):
        assert [job.log("monitor_dp", rank).count(said) for rank in (0, 1)] == [1, 1]

    (tmp_path / "full").touch()
    code, ranks = job.ctl("start", "--wait")
    ranks = job.until(lambda ranks: all(rank["state"] == "refused" for rank in ranks))
    assert all("too little disk space left for a capture" in rank["what"] for rank in ranks)
    assert "too little disk space left for a capture" in job.log("dp", 1)
    (tmp_path / "full").unlink()

    code, ranks = job.ctl("start", "--steps", "100000", "--out", str(tmp_path / "long"))
    assert code == 0
    job.until(lambda ranks: all(rank["state"] == "collecting" for rank in ranks))
    job.ranks[1].kill()
    job.ranks[1].wait()
    ranks = job.until(lambda ranks: ranks[1]["state"] == "killed")
    assert ranks[1]["what"].startswith("the process was killed; before that: collecting, step ")
    code, ranks = job.ctl("stop")
    assert (code, [(rank["rank"], rank["state"]) for rank in ranks]) == (0, [(0, "done")])
    code, ranks = job.ctl("start", "--wait", "--out", str(tmp_path / "last"))
    assert (code, [len(steps(rank)) for rank in ranks]) == (0, [1])

    (tmp_path / "end").touch()
    out, _ = job.ranks[0].communicate(timeout=PATIENCE)
    assert job.ranks[0].returncode == 0, out
    assert "trained" in out
    assert job.ctl("status")[1][0]["state"] == "ended"
    assert in_shared_memory() <= before  # neither the end nor the kill left anything

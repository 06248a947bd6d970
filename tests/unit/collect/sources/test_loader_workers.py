"""Fetches of DataLoader workers: the page they share with the training process, and what becomes of their lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl

from stepscope.collect.sources import loader_workers
from stepscope.collect.sources.loader_workers import SharedPage
from stepscope.formats.collector import read as collected
from stepscope.formats.framework.clock import FrameworkClock

FORK = """
import os, sys
from pathlib import Path
from stepscope.collect.sources.loader_workers import SharedPage

page = SharedPage()
page.open(Path("a"))
child = os.fork()
if child == 0:
    os._exit(0 if page.look() == Path("a") else 1)
sys.exit(os.waitpid(child, 0)[1])
"""


def test_a_forked_worker_sees_the_capture():
    # From a process of its own: one that has run other tests may be too large to fork.
    assert subprocess.run([sys.executable, "-c", FORK], check=False, timeout=60).returncode == 0


def test_the_page_tells_the_capture_that_runs_now(tmp_path):
    page = SharedPage()
    assert page.look() is None
    page.open(tmp_path / "a")
    assert page.look() == tmp_path / "a"
    page.open(tmp_path / "b")
    assert page.look() == tmp_path / "b"
    page.close()
    assert page.look() is None
    page.open(Path("/" + "x" * 5000))
    assert page.look() is None


def test_lines_appear_only_while_a_capture_runs(tmp_path):
    page, file = SharedPage(), tmp_path / f"x.loader_worker_{os.getpid()}.csv"
    loader_workers._record(page, "1,2,0,4\n")
    assert not file.exists()
    page.open(tmp_path)
    loader_workers._record(page, "1,2,0,4\n")
    loader_workers._record(page, "3,4,0,4\n")
    assert file.read_text() == "start_raw_ns,end_raw_ns,worker,samples\n1,2,0,4\n3,4,0,4\n"
    assert file.stat().st_mode & 0o777 == 0o640
    page.open(tmp_path / "gone")
    loader_workers._record(page, "5,6,0,4\n")  # no exception
    assert not (tmp_path / "gone").exists()


def test_ranges_of_the_workers(tmp_path):
    header = "start_raw_ns,end_raw_ns,worker,samples\n"
    (tmp_path / "x.loader_worker_70.csv").write_text(header + "100,200,0,4\n300,350,0,2\n")
    (tmp_path / "x.loader_worker_71.csv").write_text(header + "150,160,1,4\n400,5")
    (tmp_path / "x.loader_worker_72.csv").write_text("")
    tables = collected.read(tmp_path, FrameworkClock())
    assert tables.ops.select("pid", "tid", "start_ns", "end_ns", pl.col("name").cast(pl.String), "scope").rows() == [
        (70, 70, 100, 200, "DataLoader worker 0: fetch", 7),
        (71, 71, 150, 160, "DataLoader worker 1: fetch", 7),
        (70, 70, 300, 350, "DataLoader worker 0: fetch", 7),
    ]
    stages = tables.data_stages.select("op", pl.col("operator", "stage", "info").cast(pl.String)).rows()
    assert stages == [
        (0, "DataLoader worker 0", "fetch", "samples:4"),
        (1, "DataLoader worker 1", "fetch", "samples:4"),
        (2, "DataLoader worker 0", "fetch", "samples:2"),
    ]
    assert tables.quality.select("source", "count").rows() == [("x.loader_worker_71.csv", 1)]

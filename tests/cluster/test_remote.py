# SPDX-License-Identifier: Apache-2.0
"""Captures on object storage: a file system in memory, and a real S3 server on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from stepscope.cli import main
from stepscope.cluster.simulate import Fault, Plan, record
from stepscope.cluster.simulate.captures import write_captures

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of traces and one of databases, each with something beside that is not a capture."""
    folder = tmp_path_factory.mktemp("runs")
    recording = record(Plan("ddp", dp=4, micro=2, layers=1), 3, 4, Fault("allocation", 2, ns=6e6))
    for form in ("kineto", "db", "text"):
        write_captures(folder / form, recording, form)
        (folder / form / "settings.json").write_text('{"lr": 0.1}')
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def output(capfd, root, *arguments, code=0):
    capfd.readouterr()
    assert main(["cluster", str(root), "--json", "-", *arguments]) == code
    return capfd.readouterr().out


@pytest.mark.parametrize("form", ["kineto", "db", "text"])
def test_in_memory(runs, form, capfd, tmp_path):
    memory = fsspec.filesystem("memory")
    memory.put(str(runs / form), f"/{form}-run", recursive=True)
    here = output(capfd, runs / form, "--no-cache")
    assert output(capfd, f"memory://{form}-run") == here
    kept = list((tmp_path / "cache").rglob("*.arrow"))
    assert len(kept) == 4
    memory.rm(f"/{form}-run", recursive=True)
    output(capfd, f"memory://{form}-run", code=2)


def test_addresses_that_lead_nowhere(capfd):
    for address, said in (("memory://nothing", "no such file"), ("gopher://old/run", "unknown kind of address")):
        assert main(["cluster", address]) == 2
        assert said in capfd.readouterr().err
    os.environ.pop("OBS_ENDPOINT", None)
    if "obs" not in fsspec.available_protocols() and not os.environ.get("AWS_ENDPOINT_URL"):
        assert main(["cluster", "obs://bucket/run"]) == 2
        assert "OBS_ENDPOINT" in capfd.readouterr().err


@pytest.fixture
def server(tmp_path):
    """The address of a real S3 server."""
    pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (tmp_path / "moto.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
    try:
        until = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "moto.log").read_text()
                assert time.monotonic() < until
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow  # starts a server
def test_a_real_s3_server(runs, server, capfd, monkeypatch):
    for name, value in (("AWS_ENDPOINT_URL", server), ("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    storage = fsspec.filesystem("s3", skip_instance_cache=True)
    storage.mkdir("captures")
    storage.put(str(runs / "kineto"), "captures/llama", recursive=True)
    here = output(capfd, runs / "kineto", "--no-cache")
    assert output(capfd, "s3://captures/llama", "--workers", "2") == here
    assert output(capfd, "obs://captures/llama", "--workers", "1") == here
    # From the cache: nothing is copied again.
    monkeypatch.setattr("stepscope.cluster.read.remote.copied", None)
    assert output(capfd, "s3://captures/llama", "--workers", "1") == here

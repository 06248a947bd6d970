# SPDX-License-Identifier: Apache-2.0
"""Folders and files whose names are not UTF-8: one clear error for each, and the others are read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from viewer.tiny_trace import write_trace
from werkzeug.test import Client

from stepscope.analyser import Request, analyse_captures
from stepscope.capture import open_all
from stepscope.cli import main
from stepscope.tables import issues, lost
from stepscope.tables.store import fingerprint
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue

ODD = os.fsdecode(b"rank\xff.pt.trace.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    write_trace(run / "good.pt.trace.json")
    write_trace(run / ODD)
    return run


@pytest.mark.parametrize("command", ["info", "top", "report"])
def test_commands_name_the_path_and_what_to_do(folder: Path, capsys: pytest.CaptureFixture[str], command: str):
    assert main([command, str(folder / ODD)]) == 3
    error = capsys.readouterr().err
    assert "the path is not UTF-8" in error
    assert "rank\\xff" in error
    assert "rename" in error


def test_the_capture_beside_it_is_analysed(folder: Path, tmp_path: Path):
    results = analyse_captures(open_all(folder), Request(out=tmp_path / "out"), jobs=1)
    assert {Path(result.path).name: result.ok for result in results} == {"good.pt.trace.json": True, ODD: False}


def test_the_page_lists_both(folder: Path):
    catalogue = Catalogue([folder])
    client = Client(App(catalogue))
    listed = client.get("/api/v1/runs").json["runs"][0]["workers"]
    assert [worker["name"] for worker in listed] == ["good", "rank\\xff"]
    assert client.get("/api/v1/overview?wait=30&worker=good").status_code == 200
    odd = client.get("/api/v1/overview", query_string={"wait": 30, "worker": "rank\\xff"})
    assert (odd.status_code, odd.json["error"]["title"]) == (415, "the path is not UTF-8")
    catalogue.close()


def test_files_of_a_capture_may_have_any_name(tmp_path: Path):
    name = os.fsdecode(b"torch.\xfe")
    (tmp_path / name).write_text("x")
    json.dumps(fingerprint([tmp_path / name], tmp_path)).encode("utf-8")
    assert lost(issues.UNREADABLE_FILE, name, 1, name)["source"].to_list() == ["torch.\\xfe"]

"""The registry of readers, and the toy format of docs/contributing/add-a-format.md."""

from __future__ import annotations

import errno
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import orjson
import pytest
from werkzeug.test import Client

from stepscope import cli
from stepscope.capture import open_all, open_capture
from stepscope.errors import CaptureError
from stepscope.formats import registry
from stepscope.formats.ascend_capture import capture_folder
from stepscope.formats.discover import find
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue
from stepscope.web.request import Settings

PAGE = next(path / "docs/contributing/add-a-format.md" for path in Path(__file__).parents if (path / "pyproject.toml").is_file())


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """The code of the page as the package `stepscope.formats.toy`, registered by the page's own line; a capture of it."""
    package = ModuleType("stepscope.formats.toy")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, package.__name__, package)
    *modules, line = blocks("python")
    for code in modules:
        name = re.match(r"# formats/toy/(\w+)\.py", code)[1]
        module = ModuleType(f"{package.__name__}.{name}")
        exec(compile(code, module.__name__, "exec"), module.__dict__)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    namespace = {"READERS": registry.READERS}
    exec(line, namespace)
    monkeypatch.setattr(registry, "READERS", namespace["READERS"])
    capture = tmp_path / "run" / "worker.steps"
    capture.parent.mkdir()
    capture.write_text(blocks("text")[0])
    return capture


def test_names_are_unique():
    names = [reader.name for reader in registry.READERS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("reader", registry.READERS, ids=lambda reader: reader.name)
@pytest.mark.parametrize("name", ["absent", "absent.json", "absent.db", "PROF_1", "x_ascend_pt", ".hidden"])
def test_claims_never_raise(reader, name, tmp_path):
    assert reader.claims(tmp_path / name) is None


@pytest.mark.parametrize("reader", registry.READERS, ids=lambda reader: reader.name)
def test_an_unreadable_file_is_claimed_or_left_but_never_an_error(reader, tmp_path):
    for name in ("a.json", "a.json.gz", "a.db", "RuntimeProfilerJson1.json"):
        (tmp_path / name).write_bytes(b"\x1f\x8b\x00broken")
        reader.claims(tmp_path / name)


@pytest.mark.parametrize("asked", ["is_dir", "is_symlink"])
def test_an_entry_that_cannot_be_looked_at_is_no_error(asked, tmp_path, monkeypatch):
    def refuse(**options):
        raise OSError(errno.EIO, "Input/output error")

    answers = {"is_dir": lambda **options: True, "is_symlink": lambda: False, asked: refuse}
    monkeypatch.setattr(capture_folder.os, "scandir", lambda path: [SimpleNamespace(name="FRAMEWORK", **answers)])
    assert capture_folder.READER.claims(tmp_path) is None


def test_a_toy_format_is_read(toy):
    capture = open_capture(toy)
    assert capture.source == "file"
    assert capture.ops["name"].to_list() == ["forward", "backward", "forward", "backward"]
    assert capture.steps.select("step", "start_ns", "end_ns").rows() == [(1, 100_000, 200_000), (2, 210_000, 309_000)]
    assert [found.path for found in open_all(toy.parent)] == [toy]


def test_a_toy_format_is_in_every_command(toy, capsys):
    assert cli.main(["top", str(toy), "--json"]) == 0
    rows = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["name"]: row["host_total_ms"] for row in rows} == {"backward": 0.121, "forward": 0.078}
    assert cli.main(["info", str(toy), "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["source"] == "toy"


def test_a_toy_format_is_on_the_page(toy):
    catalogue = Catalogue([toy.parents[1]])
    client = Client(App(catalogue, Settings()))
    (run,) = client.get("/api/v1/runs").json["runs"]
    assert [(run["name"], [worker["name"] for worker in run["workers"]])] == [("run", ["worker"])]
    page = client.get("/api/v1/overview?run=run&worker=worker&wait=20")
    assert page.status_code == 200, page.text
    catalogue.close()


def test_a_toy_format_is_named_where_nothing_was_found(toy, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CaptureError) as problem:
        find(tmp_path / "empty")
    assert "a .steps file" in problem.value.fix
    assert "<run>/<worker>.steps" in Catalogue([tmp_path / "empty"]).listing()["empty"]["layouts"]


def test_a_toy_file_without_any_operator(toy):
    toy.write_text("nothing here\n")
    with pytest.raises(CaptureError, match="no operator"):
        open_capture(toy).load()

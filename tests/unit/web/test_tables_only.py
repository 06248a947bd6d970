# SPDX-License-Identifier: Apache-2.0
"""The page reads tables: once a capture is loaded, no view opens one of its files, the Files view aside."""

from __future__ import annotations

import contextlib
import csv
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import snapshot
from viewer.figures import Compared
from werkzeug.test import Client

import stepscope.web
from stepscope.capture import open_capture
from stepscope.cli import main
from stepscope.web import routes
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue
from stepscope.web.request import Settings
from stepscope.web.views import kernels as kernel_view

WEB = str(Path(stepscope.web.__file__).parent)
FILES_VIEW = str(Path(WEB) / "views" / "files.py")
EVENTS = {"open", "os.listdir", "os.scandir", "sqlite3.connect"}
LISTING = {"runs", "rescan"}  # they look which captures there are
OF_FILES = {"files", "files/preview", "source", "source/lines"}
NO_CAPTURE = {"cluster/pipeline"}  # none of these has one; tests/cluster/test_run_routes.py
# What a route needs to have something to say.
QUERIES: dict[str, dict[str, Any]] = {
    "operators/stacks": {"name": "aten::linear"},
    "kernels/calls": {"name": "MatMul"},
    "memory/alive": {"at": 1},
    "cluster/call": {"call": 0},
    "diff": {"a": "run=", "b": "run="},
    "source": {"file": "train.py"},
    "trace/slice": {"id": 0},
    "trace/next": {"id": 0},
    "trace/search": {"q": "a"},
    "files/preview": {"path": ""},
}
BODIES: dict[str, Any] = {
    "sql": {"query": "select count(*) from kernels"},
    "trace/tiles": [[0, 0, 0]],
    "trace/range": {},
    "trace/range/slices": {"name": 0},
    "load": {},
    "cancel": {},
    "rescan": {},
}


class Watch:
    """Python's opening of files and folders below a folder, noted while it is on. An audit hook cannot be taken out again."""

    def __init__(self) -> None:
        self.root = ""
        self.seen: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.root and event in EVENTS and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path = os.fsdecode(arguments[0])
            if path.startswith(self.root) and ".stepscope" not in path and self._by_the_page():
                self.seen.append(f"{event} {path}")

    def _by_the_page(self) -> bool:
        """Whether the page opens it, anywhere but in the Files view."""
        files, frame = set(), sys._getframe(1)
        while frame is not None:
            files.add(frame.f_code.co_filename)
            frame = frame.f_back  # type: ignore[assignment]
        return FILES_VIEW not in files and any(file.startswith(WEB) for file in files)

    @contextlib.contextmanager
    def on(self, root: Path) -> Iterator[list[str]]:
        self.root, self.seen = str(root), []
        try:
            yield self.seen
        finally:
            self.root = ""


@pytest.fixture(scope="module")
def watch():
    return Watch()


class Page:
    """A loaded capture of our own. Its clock stands still: nothing is looked for again."""

    def __init__(self, name: str, folder: Path):
        self.root = snapshot.unpack(name, folder)
        (self.root / "train.py").write_text("step()\n")
        self.catalogue = Catalogue([self.root], clock=lambda: 0.0)
        self.client = Client(App(self.catalogue, Settings(source_root=self.root)))
        self.catalogue.scan()
        for entry in self.catalogue.entries():
            self.catalogue.load(entry).result()

    def answers(self, leave: set[str]) -> dict[str, tuple[int, bytes]]:
        """Status and content of every route but those to leave."""
        found = {}
        for path in (*routes.GET, *routes.POST):
            if path not in leave:
                url = f"/api/v1/{path}"
                counters = [[track, 0, 0] for track in self._counter_tracks()[:1]]
                answer = (
                    self.client.post(url, json=counters if path == "trace/counters" else BODIES[path])
                    if path in routes.POST
                    else self.client.get(url, query_string={"wait": 30, **QUERIES.get(path, {}), **self._named(path)})
                )
                # Those of SQL hold how long it took, those of errors a number, those of the report the time of day.
                timeless = answer.status_code == 200 and path not in ("sql", "report")
                found[path] = answer.status_code, answer.get_data() if timeless else b""
        return found

    def _counter_tracks(self) -> list[int]:
        index = self.catalogue.load(self.catalogue.entries()[0]).result().trace
        return list(index.sample_bounds)

    def _named(self, path: str) -> dict[str, Any]:
        if path in ("operators/stacks", "kernels/calls"):
            listing = self.client.get(f"/api/v1/{path.partition('/')[0]}", query_string={"wait": 30}).json or {}
            return {"name": listing["rows"][0][0]} if listing.get("rows") else {}
        if path == "files/preview":
            listing = self.client.get("/api/v1/files", query_string={"wait": 30}).json or {}
            return {"path": listing["files"][0]["path"]}
        if path == "source/lines":
            listing = self.client.get("/api/v1/source/files", query_string={"wait": 30}).json or {}
            return {"file": listing["files"][0]["file"]} if listing.get("files") else {}
        return {}

    def sources(self) -> list[Path]:
        """The capture's own files, without what we keep beside it."""
        return [path for path in self.root.rglob("*") if path.is_file() and ".stepscope" not in str(path)]


NAMES = ("npu-level2", "npu-ranks", "ascend-text", "ascend-db", "kineto-cpu", "mindspore-steps")


@pytest.mark.slow  # reads six captures and asks for everything three times
def test_no_view_opens_a_file_of_the_capture(watch, tmp_path):
    good: set[str] = set()
    for name in NAMES:
        page = Page(name, tmp_path / name)
        with watch.on(page.root) as seen:
            before = page.answers(LISTING | {"load", "cancel"})
        assert seen == []
        good |= {path for path, (status, _) in before.items() if status == 200}
        # What the audit does not see is read below Python: then other bytes would give other answers, or none.
        for path in page.sources():
            path.write_bytes(b"Name,Duration(us)\nnonsense,1\n")
        assert page.answers(LISTING | OF_FILES | {"load", "cancel"}) == {
            path: answer for path, answer in before.items() if path not in OF_FILES
        }
        page.catalogue.close()
    assert good == {*routes.GET, *routes.POST} - LISTING - NO_CAPTURE - {"load", "cancel"}, (
        "a route had nothing to say on any capture"
    )


@pytest.mark.slow  # reads a capture
def test_a_view_that_reads_a_file_is_found(watch, tmp_path, monkeypatch):
    page = Page("ascend-text", tmp_path)
    (file,) = page.root.rglob("kernel_details.csv")
    # As if the view did it: the code object says that it stands there.
    code = compile(
        "def reading(capture, query):\n    open(file).close()\n    return shown(capture, query)\n", kernel_view.__file__, "exec"
    )
    namespace: dict[str, Any] = {"file": file, "shown": kernel_view.kernels}
    exec(code, namespace)
    monkeypatch.setattr(kernel_view, "kernels", namespace["reading"])
    with watch.on(page.root) as seen:
        assert page.client.get("/api/v1/kernels?wait=30").status_code == 200
    assert seen == [f"open {file}"]
    page.catalogue.close()


def change_one_duration(file: Path) -> str:
    """The first kernel takes a second more; its name."""
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    rows[0]["Duration(us)"] = str(float(rows[0]["Duration(us)"]) + 1_000_000)
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return rows[0]["Name"]


def times(folder: Path, kernel: str) -> dict[str, float]:
    """Time of one kernel in us, as page, command and tables have it."""
    catalogue = Catalogue([folder])
    catalogue.scan()
    (entry,) = catalogue.entries()
    one = Compared(catalogue, entry)
    listed = {row[0]: row for row in one.page("kernels", limit=1000)["rows"]}
    columns = [column["key"] for column in one.page("kernels")["columns"]]
    rows = open_capture(folder).kernels.to_dicts()
    catalogue.close()
    return {
        "page": listed[kernel][columns.index("total")],
        "top": sum(1000 * row["total_ms"] for row in one.top("kernel") if row["name"] == kernel),
        "tables": sum((row["duration_ns"] or row["end_ns"] - row["start_ns"]) / 1000 for row in rows if row["name"] == kernel),
    }


@pytest.mark.slow  # analyses a capture
@pytest.mark.parametrize(
    "name", [pytest.param("npu-level1", id="beside-raw-data"), pytest.param("ascend-text", id="beside-a-timeline")]
)
def test_an_edited_file_that_is_not_the_source_changes_no_figure(name, tmp_path):
    """One cell of kernel_details.csv made the page say 98.7 % for a kernel where `top` said otherwise."""
    folder = snapshot.unpack(name, tmp_path)
    if name == "npu-level1":
        assert main(["analyse", str(folder), "--export", "text"]) == 0
    (file,) = folder.rglob("kernel_details.csv")
    with file.open() as lines:
        kernel = next(csv.DictReader(lines))["Name"]
    before = times(folder, kernel)
    assert change_one_duration(file) == kernel
    after = times(folder, kernel)
    assert after == before
    assert list(after.values()) == pytest.approx([after["tables"]] * 3)


@pytest.mark.slow  # reads a capture twice
def test_an_edited_file_that_is_all_there_is_changes_every_figure(tmp_path):
    folder = snapshot.unpack("ascend-text", tmp_path)
    (file,) = folder.rglob("kernel_details.csv")
    for other in ("trace_view.json", "task_time.csv"):  # they have the times of kernels, too
        (file.parent / other).unlink()
    with file.open() as lines:
        kernel = next(csv.DictReader(lines))["Name"]
    before = times(folder, kernel)
    change_one_duration(file)
    after = times(folder, kernel)
    assert after["page"] == pytest.approx(before["page"] + 1_000_000)
    assert list(after.values()) == pytest.approx([after["page"]] * 3)

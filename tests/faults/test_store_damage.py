# SPDX-License-Identifier: Apache-2.0
"""Stores with damaged, cut, swapped, foreign and missing files: each is built again, and no number changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import polars as pl
import pytest
from viewer.tiny_trace import write_trace

from stepscope.analyser import Request, analyse_captures
from stepscope.capture import open_all, open_capture
from stepscope.cli import main
from stepscope.errors import CaptureError
from stepscope.tables import ALL_TABLES, Tables, sealed_folder
from stepscope.tables.sealed_folder import MANIFEST
from stepscope.tables.store import open_store, read_store, store_folder, write_store
from stepscope.web.timeline import index as trace_index

SOURCES = [["trace", 1, 2]]
MANIFESTS = [
    b"", b"[]", b"null", b"{}", b"5", b'"x"', b"{", b"\xff\xfe", b"[" * 5000, b"9" * 5000, b'{"rows": {}}',
    b'{"content": {}, "files": {}}', b'{"content": null, "files": null, "checksum": null}',
    b'{"content": 5, "files": [], "checksum": "0"}',
]  # fmt: skip
Damage = Callable[[Path], None]


def pauses(count: int = 20) -> Tables:
    starts = pl.Series("start_ns", range(count), dtype=pl.Int64)
    frame = pl.DataFrame([starts, (starts + 1).alias("end_ns"), pl.Series("pid", [1] * count)])
    return Tables({"gc_pauses": ALL_TABLES["gc_pauses"].conform(frame)})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", pauses(), SOURCES)
    return tmp_path / "store"


def test_a_whole_store_is_opened(store: Path):
    found = read_store(store, SOURCES)
    assert found is not None
    assert found.gc_pauses.equals(pauses().gc_pauses)


@pytest.mark.parametrize("name", [MANIFEST, "gc_pauses.arrow"])
def test_every_flipped_bit_is_seen(store: Path, name: str):
    """Same size, same date: only the checksum can tell."""
    path = store / name
    status, whole = path.stat(), path.read_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        found = read_store(store, SOURCES)
        # White space of the manifest is not content.
        assert found is None or (name == MANIFEST and orjson.loads(bytes(changed)) == orjson.loads(whole)), at


@pytest.mark.parametrize("name", [MANIFEST, "gc_pauses.arrow"])
def test_every_cut_is_seen(store: Path, name: str):
    whole = (store / name).read_bytes()
    for size in range(len(whole)):
        (store / name).write_bytes(whole[:size])
        assert read_store(store, SOURCES) is None, size
    (store / name).write_bytes(whole + b"\0")
    assert read_store(store, SOURCES) is None


@pytest.mark.parametrize("content", MANIFESTS, ids=lambda content: repr(content[:12]))
def test_any_manifest_is_no_store(store: Path, content: bytes):
    (store / MANIFEST).write_bytes(content)
    assert read_store(store, SOURCES) is None
    assert trace_index.load(store, "x") is None


def _replaced(make: Callable[[Path], object]) -> Damage:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


OTHERS: dict[str, Damage] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b"") and None,
    "a folder": _replaced(lambda path: path.mkdir()),
    "a pipe": _replaced(os.mkfifo),
    "a dead link": _replaced(lambda path: path.symlink_to("nowhere")),
    "a link to itself": _replaced(lambda path: path.symlink_to(path)),
    "a device": _replaced(lambda path: path.symlink_to("/dev/zero")),
    "another table": lambda path: pl.DataFrame({"x": [1]}).write_ipc(path),
    "text": lambda path: path.write_text("not an Arrow file") and None,
}


@pytest.mark.parametrize("damage", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("name", [MANIFEST, "gc_pauses.arrow"])
def test_foreign_files_are_no_store(store: Path, name: str, damage: Damage):
    damage(store / name)
    assert read_store(store, SOURCES) is None


@pytest.mark.parametrize("what", ["a file", "a link", "absent"])
def test_the_folder_itself(store: Path, what: str):
    shutil.move(store, moved := store.with_name("moved"))
    if what == "a file":
        store.write_text("x")
    elif what == "a link":
        store.symlink_to("nowhere")
    assert read_store(store, SOURCES) is None
    assert read_store(moved, SOURCES) is not None


def _damages(folder: Path) -> Iterator[tuple[str, Damage]]:
    """One of each kind for every file of a store."""
    for path in sorted(folder.iterdir()):
        yield f"{path.name} cut", lambda store, name=path.name: os.truncate(store / name, (store / name).stat().st_size // 2)
        yield f"{path.name} missing", lambda store, name=path.name: (store / name).unlink()
        yield f"{path.name} flipped", lambda store, name=path.name: _flip(store / name)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def test_damaged_stores_of_a_capture_give_the_same_tables(tmp_path: Path):
    trace = tmp_path / "w.pt.trace.json"
    write_trace(trace)
    whole = open_capture(trace).tables
    folder = store_folder(trace)
    for what, damage in list(_damages(folder)):
        damage(folder)
        again = open_capture(trace).tables
        assert all(again[name].equals(whole[name]) for name in ALL_TABLES), what
        assert read_store(folder, None) is not None, f"{what}: the store was built again"


class Panic(BaseException):
    """As the columnar engine's: not an Exception."""


@pytest.mark.parametrize("fault", [Panic("index out of bounds"), MemoryError(), RecursionError(), SystemExit(5), AssertionError()])
def test_one_capture_never_stops_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException):
    for name in "abc":
        write_trace(tmp_path / f"{name}.pt.trace.json")
    from stepscope.capture import Capture, NewStore

    load = Capture.load_unstored

    def broken(capture: Capture, *given: object, **named: object) -> tuple[Tables, NewStore | None]:
        if capture.path.name.startswith("b."):
            raise fault
        return load(capture, *given, **named)

    monkeypatch.setattr(Capture, "load_unstored", broken)
    results = analyse_captures(open_all(tmp_path), Request(out=tmp_path / "out"), jobs=1)
    assert [result.ok for result in results] == [True, False, True]
    assert type(fault).__name__ in str(results[1].error)


def test_an_interruption_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_trace(tmp_path / "a.pt.trace.json")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("stepscope.capture.Capture.load_unstored", interrupted)
    with pytest.raises(KeyboardInterrupt):
        analyse_captures(open_all(tmp_path), Request(out=tmp_path / "out"), jobs=1)


def test_info_shows_the_good_captures(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_trace(tmp_path / "good.pt.trace.json")
    (tmp_path / "bad.pt.trace.json").write_text("{")
    assert main(["info", str(tmp_path)]) == 3
    shown = capsys.readouterr()
    assert "good.pt.trace.json" in shown.out
    assert "error: " in shown.err


def test_a_panic_is_our_fault_not_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    write_trace(tmp_path / "a.pt.trace.json")

    def panic(*_: object, **__: object) -> None:
        raise Panic("index out of bounds")

    monkeypatch.setattr("stepscope.capture.Capture.load", panic)
    assert main(["info", str(tmp_path)]) == 70
    assert "bug in stepscope" in capsys.readouterr().err


class Panic(BaseException):
    """As the columnar engine's own is: not an Exception."""


@pytest.mark.parametrize(
    "fault", [ValueError("odd"), Panic("slice out of bounds"), MemoryError()], ids=lambda fault: type(fault).__name__
)
def test_info_of_one_bad_capture_shows_the_others(tmp_path, monkeypatch, capsys, fault):
    from stepscope import report

    events = [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {}}]
    for name in ("bad", "good"):
        (tmp_path / f"{name}.pt.trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    shown = report.overview

    def overview(capture):
        if capture.path.name.startswith("bad"):
            raise fault
        return shown(capture)

    monkeypatch.setattr(report, "overview", overview)
    assert main(["info", str(tmp_path)]) == 70
    said = capsys.readouterr()
    assert "good.pt.trace.json" in said.out
    assert f"bad.pt.trace.json: {type(fault).__name__}" in said.err


CUT = """
import os, subprocess, sys
from pathlib import Path
import polars as pl
from stepscope.tables import ALL_TABLES, Tables, sealed_folder, store

store.SMALL_BYTES = 0  # mapped, as large ones are
sealed_folder.keep_what_is_cut()
count = 1_000_000
pauses = pl.DataFrame({"start_ns": range(count), "end_ns": range(1, count + 1), "pid": [1] * count})
written = Tables({"gc_pauses": ALL_TABLES["gc_pauses"].conform(pauses)})
store.write_store(Path("store"), written, [])
opened = store.read_store(Path("store"), None)
path = Path("store", "gc_pauses.arrow")
before = len(os.listdir("/proc/self/fd"))
subprocess.run([sys.executable, "-c", sys.argv[1], str(path)], check=True, timeout=60)
assert path.stat().st_size < 10, "nobody cut it"
print(opened.gc_pauses.equals(written.gc_pauses), store.read_store(Path("store"), None), before - len(os.listdir("/proc/self/fd")))
"""


@pytest.mark.parametrize(
    "cut", ["import os, sys; os.truncate(sys.argv[1], 5)", "import sys; open(sys.argv[1], 'w').write('other')"]
)
def test_a_store_that_is_cut_while_it_is_open_stays_what_it_was(tmp_path: Path, cut: str):
    """A mapped page that is no longer in its file ends the process that reads it, unless somebody does something about it."""
    done = subprocess.run(
        [sys.executable, "-c", CUT, cut], cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{done.returncode} {done.stderr}"
    assert done.stdout.split() == ["True", "None", "1"]


def test_a_store_that_somebody_writes_to_is_read_not_mapped(store: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sealed_folder, "_MAPPED_BYTES", 0)
    monkeypatch.setattr(sealed_folder, "_keeping", True)
    monkeypatch.setattr("stepscope.tables.store.SMALL_BYTES", 0)
    with (store / "gc_pauses.arrow").open("r+b") as other:
        found = read_store(store, SOURCES)
        other.truncate(5)
    assert found is not None
    assert found.gc_pauses.equals(pauses().gc_pauses)


@pytest.mark.parametrize("value", ['"text', "5", "[[]]", "null"])
def test_facts_of_a_store_that_somebody_sent(tmp_path: Path, value: str):
    """Tables that are a capture of their own may come from anybody."""
    facts = pl.DataFrame([("activities", value)], schema=ALL_TABLES["meta"].schema, orient="row")
    write_store(tmp_path / "store", pauses().replace(meta=facts), SOURCES)
    with pytest.raises(CaptureError, match="the tables of this capture are damaged"):
        open_store(tmp_path / "store")

# SPDX-License-Identifier: Apache-2.0
"""Packs, parts and unions of captures, and their forms for other programs."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import tarfile
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from capture_rows import kernels, op, ops, rows, steps, task

from raw_capture import capture as raw_capture
from stepscope.analyser import analyse
from stepscope.capture import open_all, open_capture, store_path
from stepscope.cli import main
from stepscope.errors import CaptureError
from stepscope.export.flame_graphs import nested_calls, write_collapsed, write_speedscope
from stepscope.export.parquet import write_parquet
from stepscope.formats.pack import LIST, unpacked
from stepscope.formats.pack.unpack import read_list, unpack
from stepscope.share import stores
from stepscope.share.pack import pack
from stepscope.share.redact import Redaction
from stepscope.tables import ALL_TABLES, Facts, Tables
from stepscope.tables.store import write_store
from stepscope.web.discovery import discover

US = 1000


def run_of_one_rank(rank: int = 0, begin: int = 0) -> Tables:
    """Three steps of 100 us, with an operator and a kernel each."""
    starts = [begin + number * 100 * US for number in range(3)]
    return Tables(
        {
            "ops": ops(*(op(f"aten::mm_{place}", start + 10 * US, start + 30 * US) for place, start in enumerate(starts))),
            "kernels": kernels(*(task(start + 40 * US, start + 60 * US, op=place) for place, start in enumerate(starts))),
            "steps": steps(*((place + 5, start, start + 100 * US) for place, start in enumerate(starts))),
            "meta": Facts(source="test", rank=rank, host_name="host-a").table(),
        }
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two ranks, as folders of tables."""
    stores.write_ranks([run_of_one_rank(0), run_of_one_rank(1)], tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_folder_of_tables_opens_like_any_capture(run: Path, tmp_path: Path):
    one = open_capture(run / "rank_1")
    assert (one.source, one.facts.rank, one.ops.height) == ("store", 1, 3)
    assert one.stored() == store_path(one.files) == run / "rank_1"
    (result,) = analyse(str(run / "rank_1"))
    assert "tables only" in str(result.error)
    # What is left of a capture whose raw data was removed.
    write_store(tmp_path / "left" / ".stepscope", run_of_one_rank(2), [])
    assert open_capture(tmp_path / "left").facts.rank == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(
            lambda tables: tables.replace(kernels=tables.kernels.with_columns(op=pl.lit(9, pl.Int64))),
            "points outside",
            id="reference",
        ),
        pytest.param(lambda tables: tables.replace(steps=tables.steps.drop("step")), "missing", id="schema"),
    ],
)  # fmt: skip
def test_tables_that_hold_what_no_table_holds_are_refused(tmp_path: Path, change, said):
    write_store(tmp_path / "one", change(run_of_one_rank()), [])
    with pytest.raises(CaptureError, match="damaged") as problem:
        open_capture(tmp_path / "one").load()
    assert said in str(problem.value)


def test_a_damaged_table_is_refused(run: Path):
    file = run / "rank_0" / "ops.arrow"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(CaptureError, match="damaged"):
        open_capture(run / "rank_0").load()


def test_tables_of_another_version_open_with_a_warning(run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stepscope.tables.store.SCHEMA_VERSION", 999)
    one = open_capture(run / "rank_0")
    assert one.quality["issue"].to_list() == ["store-of-other-version"]


def test_packed_and_unpacked_gives_the_same_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = raw_capture(tmp_path / "run")
    packed = tmp_path / "run.tar.zst"
    assert main(["pack", str(tmp_path / "run"), "--out", str(packed)]) == 0
    assert main(["unpack", str(packed), "--out", str(tmp_path / "again")]) == 0
    assert {path.name for path in (tmp_path / "again").rglob("*") if path.is_file()} == {
        path.name for path in folder.rglob("*") if path.is_file() and ".stepscope" not in path.parts
    }
    said = []
    for path in (tmp_path / "run", packed, tmp_path / "again"):
        capsys.readouterr()
        assert main(["verdict", str(path), "--format", "json"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2]
    before = packed.read_bytes()
    pack(open_all(tmp_path / "again"), packed)
    assert packed.read_bytes() == before
    assert read_list(packed)["redacted"] == []
    with tarfile.open(fileobj=io.BytesIO(pa.CompressedInputStream(io.BytesIO(before), "zstd").read())) as tar:
        listed = tar.getnames()
    assert listed[0] == LIST
    assert listed[1:] == sorted(listed[1:])


def test_every_command_opens_a_pack(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    packed = tmp_path / "some.tar.zst"
    pack(open_all(run), packed, what=["raw"])
    for command in (["info"], ["top", "--by", "step"], ["verdict"], ["query", "--sql", "select count(*) from ops"]):
        words = [command[0], str(packed), *command[1:]] if command[0] != "query" else ["query", str(packed), command[2]]
        assert main(words) == 0, capsys.readouterr().err
    assert [(item.run, item.worker) for item in discover([unpacked(packed)])] == [("some", "0"), ("some", "1")]


def tar_of(*members: tuple[tarfile.TarInfo, bytes], listed: dict[str, list[object]] | None = None) -> bytes:
    """A pack with these members, whatever they are."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as tar:
        text = json.dumps({"version": 1, "files": listed or {}}).encode()
        head = tarfile.TarInfo(LIST)
        head.size = len(text)
        tar.addfile(head, io.BytesIO(text))
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return bytes(pa.compress(plain.getvalue(), "zstd", asbytes=True))


def member(name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    return info, data if kind == tarfile.REGTYPE else b""


SUM = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # of b"x"


@pytest.mark.parametrize(
    ("members", "listed", "said"),
    [
        pytest.param([member("../out")], {"../out": [1, SUM]}, "leads out", id="above"),
        pytest.param([member("/tmp/out")], {"/tmp/out": [1, SUM]}, "leads out", id="absolute"),
        pytest.param([member("a", kind=tarfile.SYMTYPE)], {}, "neither a file nor a folder", id="symbolic-link"),
        pytest.param([member("a", kind=tarfile.LNKTYPE)], {}, "neither a file nor a folder", id="hard-link"),
        pytest.param([member("a", kind=tarfile.FIFOTYPE)], {}, "neither a file nor a folder", id="pipe"),
        pytest.param([member("a"), member("a")], {"a": [1, SUM]}, "twice", id="twice"),
        pytest.param([member("a")], {}, "not in its list", id="not-listed"),
        pytest.param([], {"a": [1, SUM]}, "missing", id="missing"),
        pytest.param([member("a", b"y")], {"a": [1, SUM]}, "checksum", id="changed"),
        pytest.param([member("a\nb")], {"a\nb": [1, SUM]}, "not a name", id="control-letter"),
        pytest.param([], {"a": [1 << 50, SUM]}, "times its own size", id="too-large"),
    ],
)
def test_what_no_pack_holds_is_refused(tmp_path: Path, members, listed, said):
    packed = tmp_path / "bad.tar.zst"
    packed.write_bytes(tar_of(*members, listed=listed))
    with pytest.raises(CaptureError) as problem:
        unpack(packed, tmp_path / "out")
    assert said in str(problem.value)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_every_cut_of_a_pack_is_refused(run: Path, tmp_path: Path):
    packed = tmp_path / "a.tar.zst"
    pack(open_all(run), packed, what=["raw"])
    whole = packed.read_bytes()
    for end in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        packed.write_bytes(whole[:end])
        with pytest.raises(CaptureError, match="cannot be unpacked"):
            unpack(packed, tmp_path / "out")


def test_steps_and_times_are_cut_with_their_references(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["slice", str(run), "--steps", "6:7", "--ranks", "1", "--out", str(tmp_path / "part")]) == 0
    one = open_capture(tmp_path / "part")
    assert one.facts.rank == 1
    assert one.steps["step"].to_list() == [6, 7]
    assert one.ops["name"].to_list() == ["aten::mm_1", "aten::mm_2"]
    assert one.kernels["op"].to_list() == [0, 1]
    assert one.quality["detail"].to_list() == ["steps 6 to 7 of 3"]
    assert main(["slice", str(run), "--time", "0.1ms:", "--out", str(tmp_path / "late")]) == 0
    assert [capture.ops.height for capture in open_all(tmp_path / "late")] == [2, 2]
    capsys.readouterr()
    assert main(["slice", str(run), "--steps", "40", "--out", str(tmp_path / "none")]) == 3
    assert "steps here: 5 to 7" in capsys.readouterr().err
    assert main(["slice", str(run), "--steps", "5", "--out", str(tmp_path / "part")]) == 3
    with pytest.raises(SystemExit):
        main(["slice", str(run), "--time", "soon", "--out", str(tmp_path / "none")])


def test_merge_joins_ranks_and_windows_that_follow_one_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name, tables in (("a", [run_of_one_rank(0)]), ("b", [run_of_one_rank(1)]), ("later", [run_of_one_rank(0, 900 * US)])):
        stores.write_ranks(tables, tmp_path / name)
    assert main(["merge", *(str(tmp_path / name) for name in ("a", "b", "later")), "--out", str(tmp_path / "all")]) == 0
    first, second = open_all(tmp_path / "all")
    assert (first.ops.height, second.ops.height) == (6, 3)
    assert first.kernels["op"].to_list() == [0, 1, 2, 3, 4, 5]
    assert main(["merge", str(tmp_path / "a"), str(tmp_path / "a"), "--out", str(tmp_path / "twice")]) == 3
    assert "recorded twice at the same time" in capsys.readouterr().err


def test_each_form_is_opened_by_its_reader(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    for form in ("chrome", "kineto", "perfetto", "parquet", "db", "speedscope", "collapsed"):
        assert main(["convert", str(run), "--rank", "0", "--to", form, "--out", str(out)]) == 0
    assert open_capture(out / "rank_0.pt.trace.json.gz").ops.height == 3
    assert pl.read_parquet(out / "rank_0" / "ops.parquet").height == 3
    database = sqlite3.connect(out / "rank_0.db")
    assert database.execute("select count(*) from PYTORCH_API").fetchone() >= (3,)
    database.close()
    trace = json.loads(gzip.decompress((out / "rank_0.perfetto.json.gz").read_bytes()))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["name"].startswith("aten::mm_")]
    assert len(spans) == 3
    assert_speedscope(json.loads((out / "rank_0.speedscope.json").read_bytes()), calls=3)
    lines = (out / "rank_0.collapsed.txt").read_text().splitlines()
    assert lines == [f"aten::mm_{place} 20000" for place in range(3)]


def assert_speedscope(content: dict, calls: int) -> None:
    """What speedscope demands of evented profiles: frames exist, times rise, and what closes is what opened last."""
    opened_in_all = 0
    for profile in content["profiles"]:
        assert profile["type"] == "evented"
        stack, last = [], profile["startValue"]
        for event in profile["events"]:
            assert event["at"] >= last
            last = event["at"]
            assert content["shared"]["frames"][event["frame"]]["name"]
            if event["type"] == "O":
                stack.append(event["frame"])
                opened_in_all += 1
            else:
                assert stack.pop() == event["frame"]
        assert stack == []
        assert last == profile["endValue"]
    assert opened_in_all == calls


def test_calls_that_do_not_nest_are_cut_and_add_up(tmp_path: Path):
    calls = [
        op("outer", 0, 100), op("inner", 10, 40), op("leaf", 20, 70), op("at the end", 40, 60), op("beyond", 90, 130),
        op("empty", 95, 95), op("next", 130, 140), op("outer", 0, 50, tid=2), op("same", 0, 50, tid=2),
    ]  # fmt: skip
    tables = Tables({"ops": ops(*calls)})
    nested = nested_calls(tables)
    inside = nested.filter(pl.col("parent").is_not_null())
    parents = nested[inside["parent"].to_list()]
    assert ((inside["start_ns"] >= parents["start_ns"]) & (inside["end_ns"] <= parents["end_ns"])).all()
    content = json.loads(write_speedscope(tables, tmp_path / "a.json", "a").read_bytes())
    assert len(content["profiles"]) == 2
    assert_speedscope(content, calls=nested.height)
    lines = dict(line.rsplit(" ", 1) for line in write_collapsed(tables, tmp_path / "a.txt").read_text().splitlines())
    roots = nested.filter(pl.col("parent").is_null())
    assert sum(map(int, lines.values())) == (roots["end_ns"] - roots["start_ns"]).sum()
    assert int(lines["outer;inner"]) == 10
    with pytest.raises(CaptureError, match="neither Python calls nor operators"):
        nested_calls(Tables({}))


def needles() -> Tables:
    """Every text column of every table holds a path, a host, a user and an address, and so do names of files and metadata."""
    frames = {}
    for name, table in ALL_TABLES.items():
        if name in ("meta", "quality"):
            continue
        texts = {
            column.name: f"see /home/needleuser/needledir/x.py(3): f on needlehost.local {name} by needleuser at 10.77.66.55"
            for column in table.columns
            if column.dtype in (pl.String, pl.Categorical)
        }
        if "group" in texts:
            texts["group"] = "needlehost%eno1_60000_0_17"
        times = {column.name: 5 for column in table.columns if column.name in ("start_ns", "time_ns", "from_ns")}
        frames[name] = rows(name, {**texts, **times, **({"pid": 77123} if "pid" in table.schema else {})})
    facts = Facts(
        rank=0,
        host_name="needlehost",
        host_uid="needleuid-1",
        process_name="/opt/needledir/python",
        metadata={
            "parallel_group_info": {"needlehost%eno1_60000_0_17": {"group_name": "tp", "global_ranks": [0], "needlekey": "x"}},
            "distributed_args": {"world_size": 8, "needlekey2": "needlevalue"},
            "env": {"HOME": "/home/needleuser", "SECRET": "needlesecret"},
        },
        profiler_info={"node_name": "needlenode", "path": "/data/needledir/x"},
    )
    return Tables(frames).replace(meta=facts.table())


def test_nothing_of_the_names_is_left_in_a_redacted_pack(tmp_path: Path):
    folder = tmp_path / "run" / "needlehost_77123_20260101000000000_ascend_pt"
    write_store(folder / ".stepscope", needles(), [["needle_file", 1, 1]])
    packed = tmp_path / "clean.tar.zst"
    assert main(["pack", str(folder), "--out", str(packed), "--redact", "all"]) == 0
    unpack(packed, tmp_path / "out")
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) > len(ALL_TABLES) - 5
    tables = open_capture(tmp_path / "out").tables
    files += write_parquet(tables, tmp_path / "parquet")
    plain = pa.CompressedInputStream(io.BytesIO(packed.read_bytes()), "zstd").read()
    for where, data in [("pack", plain), *((str(path.name), path.read_bytes()) for path in files)]:
        assert b"needle" not in data.lower(), where
        assert b"10.77.66.55" not in data, where
        assert b"20260101000000000" not in data, where
    assert tables.steps["pid"].to_list() == [1]
    assert tables.facts.metadata["distributed_args"] == {"world_size": 8}
    (group,) = tables.facts.metadata["parallel_group_info"]
    assert group == tables.collectives["group"][0]  # still joins the collectives with their ranks
    assert tables.python_calls.height == 0


@pytest.mark.slow  # half a second and more
def test_each_kind_takes_out_its_own_names_only(tmp_path: Path):
    planted = needles()

    def text(kinds: set[str], text: str) -> str:
        return Redaction(frozenset(kinds), [planted], [], salt="s").text(text)

    frame = "/home/needleuser/my dir/train.py(12): forward"
    assert text({"paths"}, frame).endswith("/train.py(12): forward")
    assert "my dir" not in text({"paths"}, frame)
    assert "train.py" not in text({"paths", "stacks"}, frame)
    assert text({"stacks"}, frame) == frame
    kept = ["Default/network-Train/Conv2D-op12", "aten::add", "a/b", "1/2", "nn.Module: Linear_0", "3,4;5", "<built-in method x>"]
    assert [text({"paths", "hosts", "stacks", "metadata"}, name) for name in kept] == kept
    for path in (
        "C:\\Users\\eve\\a.py",
        "s3://bucket/x/y",
        "~eve/run/a",
        "../eve/x.py",
        "file:///eve/x",
        "eve/run/train.py",
        "f./eve/x.py",
        "cwd:/eve/x",
        "-I/opt/eve/x",
        "在/eve/x",
        "=/eve/x",
    ):
        assert "eve" not in text({"paths"}, f"at {path}, then"), path

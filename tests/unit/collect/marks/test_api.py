"""Marks and ranges: what is recorded, what is refused, what reaches the tables and files."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading

import orjson
import polars as pl
import pytest

from stepscope import mstx
from stepscope.analysis.marks import mark_summary
from stepscope.collect.marks import api as marks
from stepscope.collect.marks import log as mark_log
from stepscope.collect.marks import stages
from stepscope.collect.marks.api import Marks
from stepscope.collect.settings import Settings
from stepscope.export.ascend_db import write_profiler_db
from stepscope.formats.ascend.communication_text import communication_message
from stepscope.formats.collector import mark_lines
from stepscope.formats.framework.clock import FrameworkClock
from stepscope.tables import ALL_TABLES, Tables


@pytest.fixture
def record(tmp_path):
    """Opens a recording of marks with the given settings; the raw rows when it ends."""
    running = []

    def begin(**experimental):
        settings = Settings(experimental={"_mstx": True, **experimental})
        running.append(Marks(tmp_path, settings))
        running[-1].start()

        def end():
            running.pop().stop()
            return mark_lines.read_raw(tmp_path).sort("mark_id")

        return end

    yield begin
    for left in running:
        left.stop()


def spans(rows):
    return [(row["domain"], row["message"], row["kind"]) for row in rows.iter_rows(named=True)]


def test_marks_and_ranges(record):
    end = record()
    mstx.mark("a")
    first = mstx.range_start("outer", None)
    second = mstx.range_start("inner", domain="mine")
    mstx.range_end(first)
    mstx.range_end(second)  # of another domain: goes on
    mstx.range_end(second, domain="mine")
    mstx.range_end(second, domain="mine")
    mstx.range_end(0)
    rows = end()
    assert second > first > 0
    assert spans(rows) == [
        ("default", "a", "marker"),
        ("default", "outer", "start/end"),
        ("mine", "inner", "start/end"),
    ]
    moment, outer, inner = rows.iter_rows(named=True)
    assert moment["start"] == moment["end"] <= outer["start"] <= inner["start"] <= outer["end"] <= inner["end"]
    assert rows["tid"].to_list() == [threading.get_native_id()] * 3
    assert mstx.range_start("after") == 0


def test_ids_grow_through_captures_and_old_ones_are_not_ended_again(record):
    end = record()
    old = mstx.range_start("left open")
    assert spans(end()) == [("default", "left open", "start/end")]  # ends with the capture
    end = record()
    new = mstx.range_start("new")
    mstx.range_end(old)
    assert new > old
    assert spans(end())[1:] == [("default", "new", "start/end")]


def test_push_and_pop_are_per_thread_and_domain(record):
    assert (mstx.range_push("off"), mstx.range_pop()) == (-1, -1)
    end = record()
    depths = [mstx.range_push("1"), mstx.range_push("2"), mstx.range_push("other", domain="d"), mstx.range_pop()]
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.extend([mstx.range_pop(), mstx.range_push("t"), mstx.range_pop()]))
    thread.start()
    thread.join()
    depths += [mstx.range_pop(), mstx.range_pop(), mstx.range_pop("d")]
    assert (depths, elsewhere) == ([0, 1, 0, 1, 0, -1, 0], [-1, 0, 0])
    rows = end()
    assert rows["kind"].unique().to_list() == ["push/pop"]
    assert rows.sort("end")["message"].to_list() == ["2", "t", "1", "other"]


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        ({"_mstx_domain_include": ["default", "domain1"]}, ["default", "domain1"]),
        ({"_mstx_domain_exclude": ["domain2"]}, ["default", "domain1"]),
        ({"_mstx_domain_exclude": ["default"]}, ["domain1", "domain2"]),
        ({}, ["default", "domain1", "domain2"]),
    ],
)
def test_domains_are_filtered(record, setting, kept):
    end = record(**setting)
    for domain in ("default", "domain1", "domain2"):
        mstx.mark("m", domain=domain)
        number = mstx.range_start("r", domain=domain)
        assert (number > 0) == (domain in kept)
        mstx.range_end(number, domain=domain)
    rows = end()
    assert rows["domain"].to_list() == [domain for domain in kept for _ in range(2)]


def test_wrong_arguments_warn_and_record_nothing(record):
    end = record()
    for wrong in ({"message": ""}, {"message": 3}, {"message": "m", "domain": None}, {"message": "m", "stream": "s"}):
        with pytest.warns(UserWarning, match="mstx: range"):
            assert mstx.range_start(**wrong) == 0
        with pytest.warns(UserWarning, match="mstx: mark"):
            mstx.mark(**wrong)
    with pytest.warns(UserWarning, match="range_end takes a number"):
        mstx.range_end("1")
    assert end().height == 0


def test_a_decorator_ends_its_range_whatever_happens(record):
    @mstx.mstx_range("fails")
    def fails(value):
        """Said."""
        raise ValueError(value)

    @mstx.mstx_range("yields", domain="d")
    def yields():
        received = yield 1
        yield received

    @mstx.annotate()
    async def waits():
        await asyncio.sleep(0)
        mstx.mark("in coroutine")
        return 5

    end = record()
    with pytest.raises(ValueError, match="7"):
        fails(7)
    values = yields()
    assert (next(values), values.send(2)) == (1, 2)
    mstx.mark("before the generator ends")
    values.close()
    assert asyncio.run(waits()) == 5
    shared = mstx.mstx_range("block")
    with pytest.raises(KeyError), shared, shared:
        raise KeyError
    rows = end()
    assert (fails.__name__, fails.__doc__) == ("fails", "Said.")
    by_end = rows.sort("end", maintain_order=True)["message"].to_list()
    assert by_end == ["fails", "before the generator ends", "yields", "in coroutine", "waits", "block", "block"]


def test_a_range_that_another_thread_ends(record):
    end = record()
    number = mstx.range_start("handed over")
    thread = threading.Thread(target=mstx.range_end, args=(number,))
    thread.start()
    thread.join()
    (row,) = end().iter_rows(named=True)
    assert row["tid"] == threading.get_native_id() != row["end_tid"]


def test_many_threads_lose_nothing(record):
    end = record()

    def work(name):
        for _ in range(500):
            with mstx.mstx_range(name):
                pass

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = end()
    assert rows.group_by("message").len().sort("message").rows() == [(f"t{i}", 500) for i in range(4)]
    assert rows["mark_id"].n_unique() == 2000
    assert rows.group_by("message").agg(pl.col("tid").n_unique())["tid"].to_list() == [1] * 4


FORK = """
import os, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")  # the writing thread is a second one
from stepscope import mstx
from stepscope.collect.marks.api import Marks, current
from stepscope.collect.settings import Settings
recorded = Marks(Path(sys.argv[1]), Settings(experimental={"_mstx": True}))
recorded.start()
if not (child := os.fork()):
    os._exit(0 if mstx.range_start("child") == 0 and current() is None else 1)
assert os.waitpid(child, 0)[1] == 0
mstx.mark("parent")
recorded.stop()
import mstx_torch_plugin  # says that torch comes first, and does nothing
assert not {"torch", "polars"} & set(sys.modules), "marks need neither"
"""


def test_a_forked_child_marks_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", FORK, str(tmp_path)], check=True, timeout=60, capture_output=True, text=True)
    assert done.stderr.count("mstx_torch_plugin does nothing: import torch") == 1
    assert mark_lines.read_raw(tmp_path)["message"].to_list() == ["parent"]


def test_texts_that_are_no_utf8_and_long_ones(record):
    end = record()
    mstx.mark("bad \udcff")
    mstx.mark("é" * 5000 + '\n"quoted"')
    assert end()["message"].to_list() == ["bad ?", "é" * 5000 + '\n"quoted"']


def test_what_does_not_fit_is_counted(record, monkeypatch, tmp_path):
    monkeypatch.setattr(mark_log, "_MAX_PENDING", 2)
    monkeypatch.setattr(mark_log, "_FLUSH_SECONDS", 1000)
    end = record()
    for _ in range(5):
        mstx.mark("m")
    assert end().height == 2
    quality = mark_lines.read(tmp_path, FrameworkClock()).quality
    assert quality.select("issue", "count").rows() == [("dropped-while-recording", 3)]


def test_damaged_lines_are_counted(record, tmp_path):
    end = record()
    mstx.mark("good")
    end()
    path = tmp_path / mark_lines.FILE
    good = path.read_bytes()
    other = orjson.loads(good)
    wrong = [{**other, "start": ["x"]}, {**other, "id": other["id"] * 2}, {"pid": 1}, [], {**other, "message": [None]}]
    path.write_bytes(good + b"".join(orjson.dumps(line) + b"\n" for line in wrong) + good[: len(good) // 2])
    tables = mark_lines.read(tmp_path, FrameworkClock())
    assert tables.marks["message"].to_list() == ["good"]
    assert tables.quality.select("issue", "count").rows() == [("unreadable-line", 6)]


def test_a_full_disk_is_said_once_and_training_goes_on(record, monkeypatch, capsys):
    end = record()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mark_log.os, "write", full)
    mstx.mark("lost")
    assert end().height == 0
    assert capsys.readouterr().err.count("cannot write marks") == 1


def test_tables_and_database(record, tmp_path):
    end = record()
    mstx.mark("moment")
    with mstx.mstx_range("mine", domain="d"):
        pass
    end()
    tables = mark_lines.read(tmp_path, FrameworkClock(epoch_offset_ns=1000))
    assert tables.marks["domain"].to_list() == [None, "d"]
    assert tables.marks["range_id"].null_count() == 1
    raw = mark_lines.read_raw(tmp_path)
    assert (tables.marks["start_ns"] - 1000).to_list() == raw["start"].to_list()
    database = tmp_path / "x.db"
    write_profiler_db(tables, database)
    with sqlite3.connect(database) as opened:
        events = opened.execute(
            "select m.value, d.value, t.name, e.startNs, e.endNs, e.rangeId, e.connectionId, e.globalTid & 0xffffffff "
            "from MSTX_EVENTS e join STRING_IDS m on m.id = e.message join STRING_IDS d on d.id = e.domainId "
            "join ENUM_MSTX_EVENT_TYPE t on t.id = e.eventType order by e.startNs"
        ).fetchall()
    opened.close()
    first, second = tables.marks.iter_rows(named=True)
    tid = threading.get_native_id()
    assert events == [
        ("moment", "default", "marker", first["start_ns"], first["end_ns"], 4294967295, 4000000000, tid),
        ("mine", "d", "start/end", second["start_ns"], second["end_ns"], second["range_id"], 4000000000, tid),
    ]


class NotingVendor:
    """torch_npu with nothing but its marks."""

    def __init__(self):
        self.calls = []
        self.npu = self.mstx = self

    def range_start(self, message, stream=None, domain="default"):
        self.calls.append(("start", message, stream, domain))
        return 41

    def range_end(self, number, domain="default"):
        self.calls.append(("end", number, domain))

    def mark(self, message, stream=None, domain="default"):
        self.calls.append(("mark", message, stream, domain))


def test_the_vendors_library_gets_all_marks_where_it_is(record, monkeypatch):
    vendor = NotingVendor()
    monkeypatch.setattr(marks, "_vendor", None)
    try:
        marks.forward_to(vendor)
        with mstx.mstx_range("r", stream="their stream", domain="d"):
            mstx.mark("m")
        end = record()  # a capture of our own takes them for its time
        mstx.mark("ours")
        assert end()["message"].to_list() == ["ours"]
        mstx.mark("theirs again")
    finally:
        stages.end()
        marks.record_to(None)
    assert vendor.calls == [
        ("start", "r", "their stream", "d"),
        ("mark", "m", None, "default"),
        ("end", 41, "d"),
        ("mark", "theirs again", None, "default"),
    ]


def test_communication_message():
    sent = communication_message(
        stream=32, count=25701386, data_type="float16", group="group_name_43", op="HcclSend", destination=1
    )
    assert sent == (
        '{"streamId": "32","count": "25701386","dataType": "fp16","destRank": "1",'
        '"groupName": "group_name_43","opName": "HcclSend"}'
    )
    odd = communication_message(stream=-1, count=1, data_type="complex64", group='g"', op="GlooRecv", source=0)
    assert json.loads(odd) == {
        "streamId": "-1", "count": "1", "dataType": "na", "srcRank": "0", "groupName": 'g"', "opName": "GlooRecv",
    }  # fmt: skip


def test_summary_per_domain():
    sent = '{\\"streamId\\": \\"3\\",\\"opName\\": \\"HcclSend\\"}'
    rows = [
        # message, domain, kind, start, end, device part
        ("step 1", None, "start/end", 0, 100, (50, 90)),
        ("step 2", None, "start/end", 100, 130, (95, 100)),
        ("here", None, "marker", 5, 5, (None, None)),
        (sent, "communication", "start/end", 0, 20, (None, None)),
        (sent.replace("\\", ""), "communication", "start/end", 20, 30, (None, None)),
    ]
    frame = pl.DataFrame(
        [
            {"message": m, "domain": d, "kind": k, "start_ns": s, "end_ns": e, "device_start_ns": on[0], "device_end_ns": on[1]}
            for m, d, k, s, e, on in rows
        ]
    )
    summary = mark_summary(Tables({"marks": ALL_TABLES["marks"].conform(frame)}))
    assert summary.rows() == [
        ("default", "step *", 2, 130, 65.0, 30, 100, 2, 45),
        ("default", "here", 1, None, None, None, None, 0, None),
        ("communication", "HcclSend", 2, 30, 15.0, 10, 20, 0, None),
    ]

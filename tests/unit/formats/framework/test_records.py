# SPDX-License-Identifier: Apache-2.0
"""Raw framework records: bytes of the specification both ways, old generations, damage."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from framework_examples import EXAMPLES, KEY, PID, frame, vector
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from thorough import examples

from stepscope.formats.framework import FrameworkClock, read, read_records, text_views, tlv, write
from stepscope.formats.framework.layouts import HEADER, KINDS
from stepscope.formats.framework.records import _map_file, decode, encode, read_kind
from stepscope.formats.framework.text_views import text_column


def joined(kind: str, rows: pl.DataFrame) -> bytes:
    return b"".join(encode(KINDS[kind], rows))


def decoded(kind: str, data: bytes) -> tuple[pl.DataFrame, dict[str, tuple[int, str]]]:
    rows, losses = decode(KINDS[kind], np.frombuffer(data, np.uint8), "file")
    return rows, {issue: (count, detail) for _, issue, _, _, count, detail in pl.concat(losses).rows()}


def record(payload: bytes, *fields: tuple[int, bytes], outer: int = 1) -> bytes:
    body = payload + b"".join(struct.pack("<HI", kind, len(text)) + text for kind, text in fields)
    return struct.pack("<HI", outer, len(body)) + body


def op(name: bytes = b"aten::mm", start: int = 5) -> bytes:
    return record(struct.pack("<3q4QBB", start, 9, -1, 1, 2, 2, 0, 0, 0), (2, name))


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_read(name):
    kind, data, rows = EXAMPLES[name]
    found, losses = decoded(kind, data)
    assert_frame_equal(found, frame(kind, rows), check_exact=True)
    assert losses == {}


def test_bytes_on_the_page_are_those_of_the_examples():
    page = next(path / "docs/formats/framework.md" for path in Path(__file__).parents if (path / "pyproject.toml").is_file())
    dumps = re.findall(r"^```\n(0000  .*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    shown = [bytes.fromhex("".join(line[4:] for line in dump.splitlines())) for dump in dumps]
    whole = [data for _, data, _ in EXAMPLES.values()]
    assert len(shown) == 6
    # Of the names of calls only the first record is shown.
    assert [data.hex(" ") for data in shown if not any(example.startswith(data) for example in whole)] == []
    values = [text for _, _, rows in EXAMPLES.values() for row in rows for text in row.values()]
    (texts,) = re.findall(r"^```\n(weight\).*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert [text for text in texts.splitlines() if text not in values] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_written(name):
    kind, data, rows = EXAMPLES[name]
    assert joined(kind, frame(kind, rows)) == data


def test_columns_left_out_are_written_as_absent():
    found, _ = decoded("op_range", joined("op_range", pl.DataFrame({"start": [1], "name": ["x"]})))
    assert found.select("start", "end", "sequence_number", "name", "dtypes").rows() == [(1, 0, -1, "x", None)]
    with pytest.raises(KeyError, match="nonsense"):
        joined("op_range", pl.DataFrame({"nonsense": [1]}))


def test_categorical_text_is_written_like_text():
    rows = pl.DataFrame({"time": [1, 2], "name": ["Mul", None]})
    assert joined("op_mark", rows.with_columns(pl.col("name").cast(pl.Categorical))) == joined("op_mark", rows)


NUMBERS = {
    pl.Int64(): st.integers(-(2**63), 2**63 - 1),
    pl.UInt64(): st.integers(0, 2**64 - 1),
    pl.Int8(): st.integers(-128, 127),
    pl.UInt8(): st.integers(0, 255),
}
WORDS = st.text(st.characters(codec="utf-8"), max_size=30)
TEXTS = st.none() | WORDS


def rows_of(kind: str) -> st.SearchStrategy[pl.DataFrame]:
    fixed = KINDS[kind].layouts[0].fixed.names
    values = {
        column: TEXTS if dtype == pl.String else NUMBERS[dtype] if column in fixed else st.none()
        for column, dtype in KINDS[kind].schema.items()
    }
    if "name" in values:
        values["name"] = WORDS
    return st.lists(st.fixed_dictionaries(values), max_size=5).map(lambda rows: frame(kind, rows))


@pytest.mark.slow  # half a second and more
@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_written_is_read_back(kind, data):
    rows = data.draw(rows_of(kind))
    found, losses = decoded(kind, joined(kind, rows))
    assert_frame_equal(found, rows, check_exact=True)
    assert losses == {}


def test_files_are_read_back(tmp_path):
    write(tmp_path, vector())
    found, quality = read_records(tmp_path)
    assert quality.height == 0
    for name, rows in vector().items():
        assert_frame_equal(found[name], rows, check_exact=True)


def test_modes_and_missing_levels(tmp_path):
    old = os.umask(0o022)
    try:
        (path,) = write(tmp_path / "a" / "FRAMEWORK", {"gc_record": vector()["gc_record"], "op_mark": frame("op_mark", [])})
    finally:
        os.umask(old)
    assert path.name == "torch.gc_record"
    assert [item.stat().st_mode & 0o777 for item in (path, path.parent, path.parent.parent)] == [0o640, 0o750, 0o750]


def test_append_and_several_files(tmp_path):
    write(tmp_path, {"gc_record": frame("gc_record", [{"process_id": 2, "start": 0, "end": 1}])})
    write(tmp_path, {"gc_record": frame("gc_record", [{"process_id": 3, "start": 0, "end": 1}])}, append=True)
    (tmp_path / "torch.gc_record.0").write_bytes(struct.pack("<3Q", 4, 0, 1))
    (tmp_path / "x.gc_record").write_bytes(b"side file")
    rows, quality = read_kind(tmp_path, KINDS["gc_record"])
    assert rows["process_id"].to_list() == [2, 3, 4]
    assert quality.height == 0


def test_links_are_not_followed(tmp_path):
    (elsewhere,) = write(tmp_path / "elsewhere", {"gc_record": vector()["gc_record"]})
    folder = tmp_path / "FRAMEWORK"
    folder.mkdir()
    (folder / "torch.gc_record").symlink_to(elsewhere)
    rows, quality = read_kind(folder, KINDS["gc_record"])
    assert (rows.height, quality["issue"].to_list()) == (0, ["link-not-followed"])


def test_a_missing_folder_is_not_a_loss(tmp_path):
    (tmp_path / "torch.op_range").write_bytes(b"")
    for folder in (tmp_path, tmp_path / "absent"):
        frames, quality = read_records(folder)
        assert {name: rows.height for name, rows in frames.items()} == dict.fromkeys(KINDS, 0)
        assert quality.height == 0
        assert read(folder, FrameworkClock()).check().filled() == []


def test_unreadable_file_is_counted(tmp_path, monkeypatch):
    write(tmp_path, vector())

    def refuse(path: Path, *args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    rows, quality = read_kind(tmp_path, KINDS["op_range"])
    assert rows.height == 0
    assert quality.rows() == [("torch.op_range", "unreadable-file", "loss", "files", 1, "Permission denied")]


HEAD = struct.pack("<3q4Q", 10, 20, 3, 1, 2, 4, 0)
GENERATIONS = {
    "now": (
        HEAD + b"\x07\x01",
        [(2, b"n"), (3, b"d"), (4, b"s"), (5, b"t"), (6, b"l"), (7, b"Int"), (8, b"f"), (9, b"m"), (10, b"8")],
    ),
    "transition": (HEAD + b"\x07\x01", [(3, b"n"), (4, b"d"), (5, b"s"), (6, b"t"), (7, b"Int"), (8, b"f"), (9, b"m"), (10, b"8")]),
    "2023": (HEAD + b"\x01", [(3, b"n"), (4, b"d"), (5, b"s"), (6, b"f"), (7, b"m"), (8, b"8")]),
    "mindspore": (HEAD + struct.pack("<2QB", 77, 5, 1), [(3, b"n"), (4, b"d"), (5, b"s"), (6, b"f"), (7, b"m"), (8, b"8")]),
}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_op_range_generations(generation):
    fixed, fields = GENERATIONS[generation]
    rows, losses = decoded("op_range", record(fixed, *fields) + record(fixed, fields[0]))
    assert losses == {}
    common = rows.select(
        "start", "end", "sequence_number", "end_thread_id", "is_async", "name", "dtypes", "shapes", "stack", "modules", "flops"
    )
    assert common.rows() == [(10, 20, 3, 4, 1, "n", "d", "s", "f", "m", "8"), (10, 20, 3, 4, 1, "n", None, None, None, None, None)]
    new = generation in ("now", "transition")
    assert rows["scope"].to_list() == ([7, 7] if new else [None, None])
    assert rows["tensors"][0] == ("t" if new else None)
    assert rows["scalars"][0] == ("Int" if new else None)
    assert rows["tensor_lists"][0] == ("l" if generation == "now" else None)
    assert (rows["flow_id"][0], rows["step"][0]) == ((77, 5) if generation == "mindspore" else (None, None))


def test_mindspore_file_name(tmp_path):
    fixed, fields = GENERATIONS["mindspore"]
    (tmp_path / "op_range_0").write_bytes(record(fixed, *fields))
    assert read_kind(tmp_path, KINDS["op_range"])[0]["name"].to_list() == ["n"]


@pytest.mark.parametrize("field", [1, 2])
def test_op_mark_generations(field):
    rows, _ = decoded("op_mark", record(struct.pack("<q4Q", 1, 2, 3, 4, 5), (field, b"Mul")))
    assert rows.rows() == [(1, 2, 3, 4, 5, "Mul")]


@pytest.mark.parametrize(("small", "flags"), [("BBB", (1, 2, 1)), ("BB", (None, 2, 1)), ("B", (None, 2, None))])
def test_memory_generations(small, flags):
    payload = struct.pack(f"<7q2b{small}2Q", *range(1, 8), 20, 3, *(flag for flag in flags if flag is not None), 8, 9)
    assert len(payload) == {"BBB": 77, "BB": 76, "B": 75}[small]
    rows, losses = decoded("memory_usage", record(payload) * 2)
    assert rows.rows() == [(*range(1, 8), 20, 3, *flags, 8, 9)] * 2
    assert losses == {}


def test_outer_type_does_not_matter():
    rows, losses = decoded("op_mark", record(struct.pack("<q4Q", 1, 2, 3, 4, 5), (1, b"Mul"), outer=1))
    assert (rows["name"].to_list(), losses) == (["Mul"], {})


def test_short_record_is_skipped_and_counted():
    short = record(b"1234567")
    rows, losses = decoded("op_range", op() + short + short + op(start=6))
    assert rows["start"].to_list() == [5, 6]
    count, detail = losses["damaged-record"]
    assert count == 2
    assert f"first at byte {len(op())}:" in detail
    assert "26 bytes lost" in detail


def test_torn_tail_says_where_and_how_much():
    data = op() * 3
    rows, losses = decoded("op_range", data[:-1])
    assert rows.height == 2
    size = len(op())
    assert losses == {"truncated-record": (1, f"at byte {2 * size}: {size - 1} bytes lost")}


def test_trailing_bytes_of_a_flat_file():
    rows, losses = decoded("gc_record", struct.pack("<3Q", 1, 2, 3) + b"abc")
    assert rows.rows() == [(1, 2, 3)]
    assert losses == {"truncated-record": (1, "at byte 24: 3 bytes lost")}


def test_unknown_and_repeated_fields():
    fixed = struct.pack("<3q4QBB", 5, 9, -1, 1, 2, 2, 0, 0, 0)
    rows, losses = decoded("op_range", record(fixed, (2, b"first"), (30, b"?"), (500, b""), (2, b"last"), (3, b"")))
    assert rows.select("name", "dtypes", "shapes").rows() == [("last", "", None)]
    assert losses == {}


def test_a_record_with_very_many_fields():
    fixed = struct.pack("<3q4QBB", 5, 9, -1, 1, 2, 2, 0, 0, 0)
    rows, losses = decoded("op_range", record(fixed, (2, b"a"), *[(9, b"")] * 100, (3, b"d"), (2, b"z")) + op())
    assert rows.select("name", "dtypes", "modules").rows() == [("z", "d", ""), ("aten::mm", None, None)]
    assert losses == {}


def test_field_that_runs_past_its_record():
    fixed = struct.pack("<3q4QBB", 5, 9, -1, 1, 2, 2, 0, 0, 0)
    torn = record(fixed + struct.pack("<HI", 2, 1) + b"a" + struct.pack("<HI", 3, 99) + b"float")
    left = record(fixed, (2, b"b"))[:2] + struct.pack("<I", 58 + 7 + 3) + fixed + struct.pack("<HI", 2, 1) + b"b" + b"xyz"
    rows, losses = decoded("op_range", op() + torn + left + op())
    assert rows["name"].to_list() == ["aten::mm", "a", "b", "aten::mm"]
    assert rows["dtypes"].to_list() == [None] * 4
    assert losses == {"damaged-record": (2, f"first in the record at byte {len(op())}")}


def test_text_that_is_not_utf8_is_missing_and_counted():
    rows, losses = decoded("op_range", op(b"\xff\xfe") + op(b"a long name that ends badly \xc3") + op("é".encode()))
    assert rows["name"].to_list() == [None, None, "é"]
    assert losses == {"text-not-utf8": (2, "name")}


@pytest.mark.slow  # half a second and more
def test_every_cut_gives_what_was_whole(tmp_path):
    """The decodable records of a capture cut at any byte, and the loss counted."""
    folder = tmp_path / "whole"
    write(folder, vector())
    for path in sorted(folder.iterdir()):
        kind = KINDS[path.name.removeprefix("torch.")]
        data = path.read_bytes()
        whole, _ = decoded(kind.name, data)
        ends = _record_ends(kind.name, data)
        for cut in range(len(data)):
            rows, losses = decoded(kind.name, data[:cut])
            complete = sum(end <= cut for end in ends)
            assert_frame_equal(rows, whole.head(complete), check_exact=True)
            last = max([0, *(end for end in ends if end <= cut)])
            expected = {"truncated-record": (1, f"at byte {last}: {cut - last} bytes lost")} if cut > last else {}
            assert losses == expected


def _record_ends(kind: str, data: bytes) -> list[int]:
    if KINDS[kind].outer_type is None:
        size = KINDS[kind].layouts[0].fixed.itemsize
        return list(range(size, len(data) + 1, size))
    ends, position = [], 0
    while position < len(data):
        position += HEADER.itemsize + int.from_bytes(data[position + 2 : position + 6], "little")
        ends.append(position)
    return ends


@pytest.mark.slow  # half a second and more
@given(st.dictionaries(st.sampled_from([*KINDS, "python_func_call", "python_module_call"]), st.binary(max_size=400)), st.booleans())
@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_never_raises(tmp_path, files, ticks):
    for old in tmp_path.glob("*"):
        old.unlink()
    for name, data in files.items():
        (tmp_path / f"torch.{name}").write_bytes(data)
    read(tmp_path, FrameworkClock(counts_ticks=ticks, mhz=24.0, tick_zero=7)).check()


@pytest.mark.slow  # many values
@given(st.data())
@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_flipped_bytes_never_raise(tmp_path, data):
    for old in tmp_path.glob("*"):
        old.unlink()
    write(tmp_path, vector())
    for path in sorted(tmp_path.iterdir()):
        content = bytearray(path.read_bytes())
        for place, value in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=3)):
            content[place] = value
        path.write_bytes(content)
    read(tmp_path, FrameworkClock()).check()


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=60), st.integers(1, 9), st.binary(max_size=8))
@settings(max_examples=200, deadline=None)
def test_walking_in_lanes_is_walking_one_by_one(payloads, lanes, tail):
    data = np.frombuffer(b"".join(record(payload) for payload in payloads) + tail, np.uint8)
    expected = tlv._one_by_one(data)
    found = tlv._in_lanes(data, 0, min(lanes, data.size))
    assert found is None or found.tolist() == expected.tolist()
    assert tail or found is not None or lanes > 1


def test_long_file_is_walked_in_lanes():
    rows = pl.DataFrame({"start": range(60_000), "name": [f"op{row % 977}" * (row % 5) for row in range(60_000)]})
    data = np.frombuffer(joined("op_range", rows), np.uint8)
    assert data.size > tlv._LANES * tlv._SYNC_WINDOW
    walked = tlv._in_lanes(data, 57)
    assert walked is not None
    assert walked.tolist() == tlv._one_by_one(data).tolist()
    found, losses = decoded("op_range", data.tobytes())
    assert_frame_equal(found.select("start", "name"), rows, check_exact=True)
    assert losses == {}


@given(st.binary(min_size=0, max_size=60), st.data())
@settings(max_examples=100, deadline=None)
def test_texts_anywhere_in_the_data(data, draw):
    where = draw.draw(st.lists(st.tuples(st.integers(0, len(data)), st.integers(-1, len(data))), max_size=8))
    spans = [(start, min(length, len(data) - start)) for start, length in where]
    column, lost = text_column(
        np.frombuffer(data, np.uint8),
        np.array([start for start, _ in spans], np.int64),
        np.array([size for _, size in spans], np.int64),
    )
    expected = [_text(data[start : start + size]) if size >= 0 else None for start, size in spans]
    assert column.to_list() == expected
    assert lost == sum(size >= 0 and text is None for (_, size), text in zip(spans, expected, strict=True))


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def test_texts_across_buffers(monkeypatch):
    """Views have 32-bit offsets, so a large file is shown to them as several buffers; here they are small ones."""
    monkeypatch.setattr(text_views, "_STEP", 64)
    data = bytes(range(65, 91)) * 20
    starts, lengths = np.arange(0, 450, 7), np.full(65, 50)
    column, lost = text_column(np.frombuffer(data, np.uint8), starts, lengths)
    assert column.to_list() == [data[start : start + 50].decode() for start in starts]
    assert text_column(np.frombuffer(data, np.uint8), starts, lengths + 50)[1] == 65, "longer than a step: lost"
    assert lost == 0


def test_file_over_four_gigabytes(tmp_path, monkeypatch):
    """Offsets over 32 bits; the file is sparse, so it takes no room on the disk. Lanes would read much of it."""
    monkeypatch.setattr(tlv, "_SYNC_WINDOW", 2**40)
    size = 2_500_000_000
    filler = struct.pack("<HI58xHI", 1, 58 + 6 + size, 30, size)
    path = tmp_path / "torch.op_range"
    with path.open("wb") as file:
        file.write(op())
        for _ in range(2):
            file.write(filler)
            file.seek(size, os.SEEK_CUR)
        file.write(op(b"last", 8))
    data = _map_file(path)
    found = tlv.records(data, 58)
    assert found.stopped == data.size == path.stat().st_size > 2**32
    inner = tlv.fields(data, found.offsets + 58, found.offsets + found.lengths, [2])
    assert inner.lengths[2].tolist() == [8, -1, -1, 4]
    assert bytes(data[inner.offsets[2][3] :]) == b"last"


def test_key_keeps_all_its_bits():
    rows, _ = decoded("python_tracer_hash", EXAMPLES["tracer_hash"][1])
    assert (rows["key"][0], PID) == (KEY, 4321)

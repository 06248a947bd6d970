"""Traces that were cut off or damaged, and files that are not traces: what is whole is read, what is lost is counted."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
from pathlib import Path

import polars as pl
import pytest

from stepscope.analysis.quality import headline
from stepscope.errors import CaptureError
from stepscope.formats.chrome.events import read_events
from stepscope.formats.kineto import read as kineto

EVENTS = [
    {
        "ph": "X",
        "cat": "cpu_op",
        "name": f'op "{n}" }},{{',
        "pid": 1,
        "tid": n % 3,
        "ts": 10.5 + n,
        "dur": 1,
        "args": {"n": n, "in": [[n]]},
    }
    for n in range(40)
]
LAYOUTS = {
    "list": json.dumps(EVENTS),
    "compact": json.dumps(EVENTS, separators=(",", ":")),
    "kineto": json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, "traceName": "x"}, indent=2),
}


def read(path: Path, chunk_bytes: int = 16 << 20) -> tuple[list[int], pl.DataFrame]:
    quality: list[pl.DataFrame] = []
    frames = list(read_events(path, {"n": pl.Int64()}, quality=quality, chunk_bytes=chunk_bytes))
    return [n for frame in frames for n in frame["args.n"].to_list()], pl.concat(quality) if quality else pl.DataFrame()


def whole_events(text: str) -> int:
    """How many events end within the text, by the standard parser."""
    opening = text.find("[")
    if opening < 0:
        return 0
    decoder, place, count = json.JSONDecoder(), opening + 1, 0
    while True:
        place += len(text[place:]) - len(text[place:].lstrip(" ,\n"))
        try:
            _, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError:
            return count
        count += 1


@pytest.mark.slow  # one file per place of the cut
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunk_bytes", [500, 16 << 20])
def test_a_cut_file_gives_all_whole_events(tmp_path, layout, chunk_bytes):
    text = LAYOUTS[layout]
    path = tmp_path / "trace.json"
    for end in range(1, len(text) - 1, 151):
        path.write_text(text[:end])
        expected = whole_events(text[:end])
        if not expected:
            with pytest.raises(CaptureError):
                read(path, chunk_bytes)
            continue
        found, quality = read(path, chunk_bytes)
        assert found == list(range(expected)), end
        # The rest of the header may be lost too; the events are then complete and nothing is hidden either way.
        assert quality.height > 0, end


def test_a_cut_gzip_file_gives_the_events_before_the_cut(tmp_path):
    packed = gzip.compress(LAYOUTS["kineto"].encode(), 1)
    path = tmp_path / "trace.json.gz"
    most = 0
    for end in range(60, len(packed) - 1, 41):
        path.write_bytes(packed[:end])
        try:
            found, quality = read(path)
        except CaptureError:
            continue
        most = max(most, len(found))
        assert found == list(range(len(found)))
        assert "truncated-file" in quality["issue"].cast(pl.String).to_list()
    assert most >= 35


@pytest.mark.slow  # one file per damage
@pytest.mark.parametrize("layout", LAYOUTS)
def test_damage_in_the_middle_costs_few_events(tmp_path, layout):
    text = LAYOUTS[layout].replace(" },{", "").encode()
    path = tmp_path / "trace.json"
    chance = random.Random(7)
    first = text.index(b"[") + 400
    for _ in range(60):
        place = chance.randrange(first, len(text) - 100)
        damaged = bytearray(text)
        damaged[place : place + 3] = bytes(chance.choice(b'{}[]",:x\xff\x00\\') for _ in range(3))
        path.write_bytes(damaged)
        found, _ = read(path, chance.choice([300, 2000, 16 << 20]))
        kept = [n for n in found if n is not None]
        assert len(set(kept) & set(range(40))) >= 36, (place, damaged[place : place + 3])


@pytest.mark.parametrize("seed", range(30))
def test_rubbish_never_gives_anything_but_a_clear_error(tmp_path, seed):
    chance = random.Random(seed)
    alphabet = b'{}[]",:\\ \n01-.eNaIn\xff\x00' if seed % 2 else bytes(range(256))
    body = bytes(chance.choice(alphabet) for _ in range(3000))
    path = tmp_path / "trace.json"
    path.write_bytes(chance.choice([b"", b"[", b'{"traceEvents": [', b"[{", b"\x1f\x8b\x08\x00"]) + body)
    with contextlib.suppress(CaptureError):
        read(path, chance.choice([100, 16 << 20]))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("key", ["dur", "ts", "args"])
def test_impossible_numbers_cost_only_themselves(tmp_path, value, key):
    good = json.dumps(EVENTS[0])
    bad = json.dumps({**EVENTS[1], key: "@" if key != "args" else {"n": 1, "bad": "@"}}).replace('"@"', value)
    path = tmp_path / "trace.json"
    path.write_text(f"[{good}, {bad}, {good}]")
    quality: list[pl.DataFrame] = []
    found = pl.concat(read_events(path, {"n": pl.Int64(), "bad": pl.Float64()}, quality=quality))
    assert found["args.n"].to_list() == [0, 1, 0]
    assert found["ts_ns"][1] == (None if key == "ts" else 11500)
    assert found["dur_ns"][1] == (None if key == "dur" else 1000.0)
    assert found["args.bad"].null_count() == 3
    assert pl.concat(quality)["count"].sum() == 1


def test_the_kineto_reader_passes_the_losses_on(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(LAYOUTS["kineto"][:-300])
    tables = kineto.read(path).check()
    assert 35 <= tables.ops.height < 40
    assert "truncated-record" in tables.quality["issue"].cast(pl.String).to_list()
    assert headline(tables.quality) == "1 file ends early: everything before the cut was read"

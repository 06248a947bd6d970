# SPDX-License-Identifier: Apache-2.0
"""Raw folders with cut, flipped, swapped, foreign and missing files: nothing raises, what is lost is counted."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prof_folder import write
from thorough import THOROUGH, examples, some

from stepscope.errors import CaptureError
from stepscope.formats import cann
from stepscope.formats.cann.device.side import read_device
from stepscope.formats.cann.folder import Prof, open_prof
from stepscope.formats.cann.host.dictionaries import read_dictionaries
from stepscope.formats.cann.host.side import read_host
from stepscope.formats.cann.layouts import LAYOUTS, STARS, TASK_TRACK, Layout
from stepscope.formats.cann.records import read_records
from stepscope.formats.cann.sampled.tables import read_sampled
from stepscope.tables import ALL_TABLES

TEXTS = {
    "hccs.data": "Timestamp: tx rx\n1.0: 100 200\n2.0: 150 260\n",
    "nic.data": "1.5 100 1 2 3 4 5 6 7 8 9 10 11 12 0\n2.5 100 1 2 3 4 5 6 7 8 9 10 11 12 0\n",
    "roce.data": "1.5 100 1 2 3 4 5 6 7 8 9 10 11 12 0\n",
}


def _folder() -> dict[str, bytes]:
    """Every file of a folder that has all kinds: written ones by our writers, sampled ones of other kinds with any bytes."""
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as parent:
        prof = write(Path(parent), slice_bytes=2000)
        files = {
            str(path.relative_to(prof)): path.read_bytes() for path in prof.rglob("*") if path.is_file() and path.suffix != ".done"
        }
    present = {name.rpartition("/")[2].partition(".slice_")[0] for name in files}
    for layout in LAYOUTS:
        if not layout.file.startswith(("compact", "additional", "api_event")) and f"{layout.file}.0" not in present:
            files[f"device_0/data/{layout.file}.0.slice_0"] = rng.integers(0, 256, layout.size * 8, np.uint8).tobytes()
        elif layout.file.startswith(("compact", "additional")) and f"aging.{layout.file}" not in present:
            records = rng.integers(0, 256, layout.size * 3, np.uint8).view(layout.dtype)
            records["magic"] = layout.magic
            files[f"host/data/aging.{layout.file}.slice_9"] = records.tobytes()
    return files | {f"device_0/data/{name}.0.slice_0": text.encode() for name, text in TEXTS.items()}


FILES = _folder()
NAMES = sorted(FILES)
DATA = [name for name in NAMES if ".slice_" in name]
SETTINGS = [name for name in NAMES if ".slice_" not in name]
Damage = Callable[[dict[str, bytes]], None]


BASE = Path(tempfile.mkdtemp(prefix="stepscope-fuzz-")) / "PROF_000001_20260101000000000_00000001AAAAAAAA"
atexit.register(shutil.rmtree, BASE.parent, ignore_errors=True)


@contextlib.contextmanager
def folder(files: dict[str, bytes]) -> Iterator[Path]:
    """The folder with these files; it is changed back afterwards, which is faster than writing it anew each time."""
    _become(FILES, {} if not BASE.exists() else FILES)
    try:
        _become(files, FILES)
        yield BASE
    finally:
        _become(FILES, files)


def _become(wanted: dict[str, bytes], there: dict[str, bytes]) -> None:
    for name in there.keys() - wanted.keys():
        (BASE / name).unlink()
    for name, data in wanted.items():
        if there.get(name) is not data:
            path = BASE / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # not emptied in place: arrays may still be mapped to it
            path.write_bytes(data)
    for part in ("host", "device_0"):
        if not any(name.startswith(part) for name in wanted):
            shutil.rmtree(BASE / part, ignore_errors=True)


def _cut(name: str, at: float, head: bool) -> Damage:
    def damage(files: dict[str, bytes]) -> None:
        data = files.get(name, b"")
        place = int(len(data) * at)
        files[name] = data[place:] if head else data[:place]

    return damage


def _flip(name: str, places: list[float], bit: int) -> Damage:
    def damage(files: dict[str, bytes]) -> None:
        data = bytearray(files.get(name, b""))
        for place in places if data else ():
            data[int(place * (len(data) - 1))] ^= 1 << bit
        files[name] = bytes(data)

    return damage


def _patch(name: str, at: float, what: bytes) -> Damage:
    """Overwrites or, at the end, adds."""

    def damage(files: dict[str, bytes]) -> None:
        data = files.get(name, b"")
        place = int(len(data) * at)
        files[name] = data[:place] + what + data[place + len(what) :]

    return damage


def _field(layout: Layout, field: str, value: int) -> Damage:
    """Any value in a field of all records of a kind: types, levels, counts, sizes, stamps."""

    def damage(files: dict[str, bytes]) -> None:
        for name in DATA:
            data = files.get(name, b"")
            if layout.file in name and len(data) % layout.size == 0:
                records = np.frombuffer(bytearray(data), np.uint8).view(layout.dtype)
                kind = records.dtype[field].base.kind
                if kind in "ui":
                    records[field] = np.array(value, np.uint64).astype(records.dtype[field].base)
                files[name] = records.tobytes()

    return damage


def _swap(one: str, other: str) -> Damage:
    def damage(files: dict[str, bytes]) -> None:
        files[one], files[other] = files.get(other, b""), files.get(one, b"")

    return damage


def _drop(name: str) -> Damage:
    return lambda files: files.pop(name, None) and None


def _replace(name: str, data: bytes) -> Damage:
    return lambda files: files.update({name: data})


PART = st.floats(0, 1, allow_nan=False)
ANY = st.sampled_from(NAMES)
FIELDS = [(layout, field) for layout in LAYOUTS for field in layout.dtype.names or () if field != "magic"]
VALUES = st.one_of(st.sampled_from([0, 1, 55, 0xFFFF, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))
DAMAGE = st.one_of(
    st.builds(_cut, ANY, PART, st.booleans()),
    st.builds(_flip, ANY, st.lists(PART, min_size=1, max_size=20), st.integers(0, 7)),
    st.builds(_patch, ANY, PART, st.binary(max_size=300)),
    st.tuples(st.sampled_from(FIELDS), VALUES).map(lambda drawn: _field(*drawn[0], drawn[1])),
    st.builds(_swap, st.sampled_from(DATA), st.sampled_from(DATA)),
    st.builds(_drop, ANY),
    st.builds(
        _replace, st.sampled_from(SETTINGS), st.sampled_from([b"", b"[]", b"{}", b"null", b'{"CPU": {}, "DeviceInfo": [[]]}'])
    ),
)


def _records(prof: Prof) -> list[pl.DataFrame]:
    return [row for part in (*prof.parts, None) for layout in LAYOUTS for row in read_records(part, layout).lost]


def _dictionaries(prof: Prof) -> list[pl.DataFrame]:
    found = read_dictionaries(prof.host)
    numbers = np.array([0, 1, 2**64 - 1], np.uint64)
    assert found.hashes.text(numbers).len() == 3
    assert found.type_names(np.array([5000, 1]), np.array([27, 2**32 - 1])).len() == 2
    return list(found.lost)


def _host(prof: Prof) -> list[pl.DataFrame]:
    return list(read_host(prof).lost)


def _devices(prof: Prof) -> list[pl.DataFrame]:
    return [read_device(part, wide).quality for part in prof.devices for wide in (False, True)]


def _samples(prof: Prof) -> list[pl.DataFrame]:
    tables = read_sampled(prof)
    for name in tables.filled():
        ALL_TABLES[name].check(tables[name])
    return [tables["quality"]]


def _whole(prof: Prof) -> list[pl.DataFrame]:
    try:
        tables = cann.read(prof.path)
    except CaptureError:  # nothing usable is left
        return []
    for name in tables.filled():
        ALL_TABLES[name].check(tables[name])
    return [tables["quality"]]


READERS = {
    "records": _records,
    "dictionaries": _dictionaries,
    "host": _host,
    "devices": _devices,
    "samples": _samples,
    "whole": _whole,
}


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(damages=st.lists(DAMAGE, min_size=1, max_size=4))
def test_no_damage_stops_a_reader(reader: str, damages: list[Damage]):
    files = dict(FILES)
    for damage in damages:
        damage(files)
    with folder(files) as path:
        for frame in READERS[reader](open_prof(path)):
            ALL_TABLES["quality"].check(frame)


@pytest.mark.parametrize("reader", READERS if THOROUGH else ["whole"])  # which reads with all of the others
@pytest.mark.parametrize("name", ["host", "device_0", *sorted({name.partition(".slice_")[0] for name in NAMES})])
def test_no_missing_file_stops_a_reader(reader: str, name: str):
    with folder({found: data for found, data in FILES.items() if not found.startswith(name)}) as path:
        READERS[reader](open_prof(path))


def _counted(files: dict[str, bytes], layout: Layout) -> tuple[int, dict[str, int]]:
    """Whole records, and what was lost by issue: of cut records the bytes that are left of them."""
    with folder(files) as path:
        prof = open_prof(path)
        found = read_records(prof.host if layout is TASK_TRACK else prof.devices[0], layout)
        # Read before the folder goes.
        losses: Counter[str] = Counter()
        for frame in found.lost:
            for _, issue, _, _, count, detail in frame.rows():
                losses[issue] += int(detail.split(": ")[1].split()[0].replace(",", "")) if issue == "truncated-record" else count
        return len(found), dict(losses)


def _slices(layout: Layout) -> list[str]:
    return [name for name in DATA if f"{layout.file}." in name]


@pytest.mark.parametrize("layout", [TASK_TRACK, STARS], ids=["task_track", "stars_soc"])
@given(data=st.data())
def test_bytes_cut_off_are_counted(layout: Layout, data: Any):
    (name,) = _slices(layout)
    whole = len(FILES[name]) // layout.size
    cut = data.draw(st.integers(0, len(FILES[name])))
    head = data.draw(st.booleans())
    left = FILES[name][cut:] if head else FILES[name][: len(FILES[name]) - cut]
    records, losses = _counted({**FILES, name: left}, layout)
    assert records == whole - -(-cut // layout.size)
    assert losses == ({"truncated-record": len(left) % layout.size} if len(left) % layout.size else {})


@given(st.sets(st.integers(0, 13)))
def test_broken_records_are_counted(broken: set[int]):
    (name,) = _slices(STARS)
    data = bytearray(FILES[name])
    assert len(data) == 14 * STARS.size
    for record in broken:
        data[record * STARS.size + 2] ^= 0x40
    records, losses = _counted({**FILES, name: bytes(data)}, STARS)
    assert (records, losses) == (14 - len(broken), {"damaged-record": len(broken)} if broken else {})


@given(st.permutations(range(5)), st.sets(st.integers(0, 4), max_size=3))
def test_slices_in_a_wrong_order_keep_their_whole_records(order: list[int], gone: set[int]):
    """Cut at any byte and put together wrongly, at most the records at the borders are lost."""
    (name,) = _slices(STARS)
    data, size = FILES[name] * 8, STARS.size
    borders = [0, 1000, 2500, 3333, 6000, len(data)]
    files = {found: content for found, content in FILES.items() if found != name}
    for number, piece in enumerate(order):
        if piece not in gone:
            files[name.replace("slice_0", f"slice_{number}")] = data[borders[piece] : borders[piece + 1]]
    records, losses = _counted(files, STARS)
    left = sum(borders[piece + 1] - borders[piece] for piece in order if piece not in gone)
    inside = sum(borders[piece + 1] // size - -(-borders[piece] // size) for piece in order if piece not in gone)
    assert inside <= records <= inside + 4
    assert losses.get("truncated-record", 0) + size * (records + losses.get("damaged-record", 0)) == left
    assert bool(losses) or (order == sorted(order) and not gone) or records * size == left


def test_a_whole_folder_loses_nothing_of_what_was_written():
    written = {name: data for name, data in FILES.items() if "slice_9" not in name and not name.endswith(tuple(TEXTS))}
    with folder(written) as path:
        prof = open_prof(path)
        assert [row for frame in (*prof.lost, *_dictionaries(prof), *_devices(prof)[1:]) for row in frame.rows()] == []


EXTREMES = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
SAMPLED = [layout for layout in LAYOUTS if not layout.file.startswith(("compact", "additional", "api_event"))]


def _extremes(layout: Layout, field: str) -> Damage:
    """The records of a kind with the ends of every range in a field, one after the other."""

    def damage(files: dict[str, bytes]) -> None:
        for name in DATA:
            data = files.get(name, b"")
            if layout.file in name and len(data) % layout.size == 0:
                records = np.frombuffer(bytearray(data), np.uint8).view(layout.dtype)
                values = np.resize(EXTREMES, len(records)).astype(records.dtype[field].base)
                records[field] = values.reshape(-1, *(1,) * (records[field].ndim - 1))
                files[name] = records.tobytes()

    return damage


@pytest.mark.slow  # a read for each of some two hundred fields
@pytest.mark.parametrize("layout", SAMPLED, ids=lambda layout: f"{layout.file}-{layout.size}")
def test_no_extreme_value_of_a_sampled_field_stops_a_reader(layout: Layout):
    """Every field that is a number: bounded, where the draws above are not."""
    fields = [field for other, field in FIELDS if other is layout and layout.dtype[field].base.kind in "ui"]
    for field in some(fields, 6):
        files = dict(FILES)
        _extremes(layout, field)(files)
        with folder(files) as path:
            for frame in READERS["samples"](open_prof(path)):
                ALL_TABLES["quality"].check(frame)

# SPDX-License-Identifier: Apache-2.0
"""The C++ kernel reads csv files exactly as the columnar engine does, damaged ones too."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from stepscope import formats
from stepscope.formats import codec_cells
from stepscope.formats.ascend import cells
from stepscope.formats.ascend.cells import Further, read_cells
from stepscope.formats.ascend.columns import column

pytestmark = pytest.mark.usefixtures("kernels")

COLUMNS = (
    column("name", "text", "Name"),
    column("shapes", "shapes", "Shapes"),
    column("start_ns", "time", "Start", needed=True),
    column("duration_ns", "number", "Duration", unit=1000.0),
    column("device", "count", "Device"),
    column("absent", "number", "Not there"),
)
FURTHER = Further(lambda name: name.startswith("aic_"))
HEADER = "Name,Unwanted,Shapes,Start,Duration,Device,aic_ratio"


def read(folder: Path, data: bytes, switch: str) -> tuple[pl.DataFrame, list[tuple[object, ...]]]:
    path = folder / "file.csv"
    path.write_bytes(data)
    losses: list[pl.DataFrame] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSCOPE_KERNELS", switch)
        rows = read_cells([path], COLUMNS, quality=losses, further=FURTHER)
    return rows, pl.concat(losses).rows() if losses else []


def assert_same(folder: Path, data: bytes) -> pl.DataFrame:
    found, said = read(folder, data, "")
    wanted, engine_said = read(folder, data, "0")
    assert_frame_equal(found, wanted, check_exact=True)
    assert said == engine_said
    return found


def lines(*rows: str) -> bytes:
    return "\n".join([HEADER, *rows, ""]).encode()


def taken(*rows: str) -> bool:
    """Whether the kernel reads these lines itself."""
    kinds = ((0, "text"), (2, "shapes"), (3, "time"), (4, "number"), (5, "count"), (6, "number"))
    return codec_cells.read_lines("\n".join([*rows, ""]).encode(), 7, kinds) is not None


PLAIN = 'add,x,"""2,3;4""",1736408883500139.304\t,13.134,0,0.013'


def test_values(tmp_path):
    found = assert_same(tmp_path, lines(PLAIN, "mul,,N/A,5.25,-1.5,N/A,N/A", '"a ""b"", c",x,7,0,3,1,2'))
    assert found["name"].to_list() == ["add", "mul", 'a "b", c']
    assert found["shapes"].to_list()[:2] == ["2,3;4", None]
    assert found["start_ns"].to_list()[:2] == [1736408883500139304, 5250]
    assert found["duration_ns"].to_list()[:2] == [13134.0, -1500.0]
    assert found["device"].to_list()[:2] == [0, None]
    assert found["aic_ratio"].to_list()[:2] == [0.013, None]
    assert found["absent"].to_list() == [None] * 3


NUMBERS = [
    *("0", "-0", "-0.0", "007", "9007199254740993", "0.1", "123456.789012345", "0.000000000000000001", "1.", ".5", "+1", "1e5"),
    *("inf", "nan", "N/A", "", '"1"', "-", "--1", "1,5", " 1", "1 ", "999999999999999999", "1000000000000000000", "9" * 20),
]  # fmt: skip
TEXTS = ['"a,b"', '"a""b"', '""', '"N/A"', "N/A", "", "N/Ax", "é", "\t", " a ", 'a"b', '"a\nb"', '"a"b', "a\rb", "\0", '"é"']
TIMES = ["5", "5.", "5.2", "5.25", "5.2504", "5.250\t", "5.250  ", " 5.250", "-5.250", "0.000", "5.2x", "x"]


@pytest.mark.parametrize("cell", NUMBERS)
def test_every_form_of_a_number(tmp_path, cell):
    for form in ("add,x,2,5.250,{},0,0.5", "add,x,2,5.250,1,{},0.5", "add,x,2,{},1,0,0.5", "add,x,2,5.250,1,0,{}"):
        assert_same(tmp_path, lines(PLAIN, form.format(cell)))


@pytest.mark.parametrize("cell", TEXTS)
def test_every_form_of_a_text(tmp_path, cell):
    assert_same(tmp_path, lines(PLAIN, f"{cell},x,2,5.250,1,0,0.5"))
    assert_same(tmp_path, lines(PLAIN, f"a,{cell},2,5.250,1,0,0.5"))


@pytest.mark.parametrize("cell", TIMES)
def test_every_form_of_a_time(tmp_path, cell):
    for other in ("6.125", "6.5"):
        assert_same(tmp_path, lines(PLAIN, f"a,x,2,{cell},1,0,0.5", f"a,x,2,{other},1,0,0.5"))


def test_ends_of_lines_and_files(tmp_path):
    whole = lines(PLAIN, PLAIN)
    for data in (whole[:-1], whole[:-9], whole + b"\n", whole + b"a,b\n", whole.replace(b"\n", b"\r\n"), whole + b"\xff,,,1,,,\n"):
        assert_same(tmp_path, data)
    assert_same(tmp_path, HEADER.encode())
    assert_same(tmp_path, HEADER.encode() + b"\n")
    assert_same(tmp_path, whole.replace(b"add", b"\xff"))


def test_the_kernel_is_what_reads():
    assert taken(PLAIN)
    assert taken(PLAIN, "N/A,,,1,,N/A,N/A")
    assert not taken("add,x,2,5.250,1e5,0,0.5")
    assert not taken(PLAIN + ",")
    assert not taken(PLAIN[:-6])
    # Cells out of order, twice, or beyond the end of the line are nobody's.
    assert codec_cells.read_lines(b"1,2\n", 2, [(0, "count"), (1, "count")]) is not None
    for wanted in ([(1, "count"), (0, "count")], [(0, "count"), (0, "count")], [(2, "count")], [(-1, "count")]):
        assert codec_cells.read_lines(b"1,2\n", 2, wanted) is None


def test_lines_without_cells_take_no_memory(monkeypatch):
    """Room is made for as many rows as there are line ends, if they can be rows."""
    room = []
    make = np.empty
    monkeypatch.setattr(np, "empty", lambda *shape: room.append(shape) or make(*shape))
    assert codec_cells.read_lines(b"\n" * 1000, 2, [(0, "text")]) is None
    assert codec_cells.read_lines(b"," + b"\n" * 999, 2, [(0, "text")]) is None
    assert not room
    for shortest in (b",\n,\n", b",\n,", b"\n\n"):
        width = 1 + shortest.startswith(b",")
        (found,) = codec_cells.read_lines(shortest, width, [(0, "text")])
        assert found.to_list() == [None, None]


def test_without_a_kernel_nothing_of_it_is_loaded(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, codec_cells.__name__)
    monkeypatch.delattr(formats, "codec_cells")
    assert read(tmp_path, lines(PLAIN), "0")[0].height == 1
    assert codec_cells.__name__ not in sys.modules


def test_more_texts_than_fit_one_table(tmp_path):
    rows = [f"name {number % 700},x,2,{number}.5,1,0,0.5" for number in range(3000)]
    found = assert_same(tmp_path, lines(*rows))
    assert found["name"].to_list() == [f"name {number % 700}" for number in range(3000)]


def test_a_file_in_pieces(tmp_path, monkeypatch):
    rows = [f'name {number % 7},x,"""{number % 3}""",{number}.5,{number / 8},N/A,0.5' for number in range(100)]
    whole = assert_same(tmp_path, lines(*rows))
    monkeypatch.setattr(cells, "_PIECE_BYTES", 100)
    assert_frame_equal(assert_same(tmp_path, lines(*rows)), whole, check_exact=True)
    assert_same(tmp_path, lines(*rows, "a,x,2,5.250,1e5,0,0.5"))


def test_damage(tmp_path):
    chance = random.Random(4)
    pieces = [b",", b'"', b"\n", b"\r", b"\0", b".", b"-", b"N/A", b"\xc3\xa9", b"\xff", b"9" * 20, b"\t", b""]
    whole = lines(*[PLAIN, "mul,,N/A,5.25,-1.5,N/A,N/A", "sub,y,,6.250,2,1,0.25"] * 3)
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 3)):
            at = chance.randrange(len(HEADER) + 1, len(data))
            data[at : at + chance.randrange(3)] = chance.choice(pieces)
        assert_same(tmp_path, bytes(data))

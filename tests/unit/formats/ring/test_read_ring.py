"""Rings as captures: tables, `info`, `top --by step`; damaged ones are counted or refused, nothing else."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

import stepscope
from stepscope.cli import main
from stepscope.errors import CaptureError
from stepscope.formats.ring import layout
from stepscope.formats.ring.read import read

MS = 1_000_000


def ring_bytes(rows, *, identity=None, epoch=10**18, count=None):
    """A ring with some rows: dictionaries of fields."""
    text = json.dumps(identity or {"rank": 2, "host": "h", "pid": 9}).encode()
    head = layout.HEAD.pack(layout.MAGIC, layout.VERSION, layout.ROWS, layout.ROW_BYTES, len(text), 0, epoch) + text
    body = np.zeros(layout.ROWS, np.dtype([(name, "<i8") for name in layout.FIELDS]))
    for number, row in enumerate(rows):
        for name, value in row.items():
            body[number][name] = value
    cells = np.array([len(rows) if count is None else count], "<i8").tobytes()
    return (head.ljust(layout.CELLS_AT, b"\0") + cells).ljust(layout.HEAD_BYTES, b"\0") + body.tobytes()


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "h_9_abcd.ring"
    rows = [{"step": n, "start": n * 20 * MS, "end": n * 20 * MS + 10 * MS, "data_wait": 3 * MS} for n in range(1, 5)]
    rows[2] |= {"flags": layout.OUTLIER | layout.RECORDING | 9 * MS << layout.LIMIT_SHIFT, "gc": 2 * MS}
    file.write_bytes(ring_bytes(rows))
    return file


def test_tables(path):
    capture = stepscope.open(path)
    assert capture.steps.select("step", "pid", "start_ns", "end_ns", "inflated").rows()[2] == (
        3, 9, 10**18 + 60 * MS, 10**18 + 70 * MS, True,
    )  # fmt: skip
    assert capture.step_phases.select("data_wait_ns", "gc_ns", "limit_ns", "outlier").rows()[1:3] == [
        (3 * MS, 0, None, False),
        (3 * MS, 2 * MS, 9 * MS, True),
    ]
    assert (capture.facts.rank, capture.facts.host_name, capture.facts.source) == (2, "h", "ring")


def test_commands(path, capsys):
    assert main(["top", str(path), "--by", "step", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["host_ms"] for row in rows] == [10.0] * 4
    assert [row["gc_ms"] for row in rows] == [0.0, 0.0, 2.0, 0.0]
    assert main(["info", str(path.parent), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["source"], told["rank"], told["rows"]) == ("ring", 2, {"steps": 4, "step_phases": 4})


def test_an_empty_ring_has_no_steps(tmp_path):
    file = tmp_path / "a.ring"
    file.write_bytes(ring_bytes([]))
    assert read(file).steps.height == 0


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({"start": 5, "end": 4}, id="ends-before-it-starts"),
        pytest.param({"start": 2**63 - 1, "end": 2**63 - 1}, id="end-of-the-range"),
    ],
)
def test_impossible_rows_are_counted(tmp_path, row):
    file = tmp_path / "a.ring"
    file.write_bytes(ring_bytes([{"step": 0, "start": 1, "end": 2, **row}, {"step": 1, "start": 1, "end": 2}]))
    tables = read(file)
    assert tables.steps["step"].to_list() == [1]
    assert tables.quality.select("count").rows() == [(1,)]


@pytest.mark.parametrize(("count", "steps"), [(-1, []), (2**62, []), (1, [1]), (2, [1, 2])])
def test_counts(tmp_path, count, steps):
    file = tmp_path / "a.ring"
    file.write_bytes(ring_bytes([{"step": 1, "end": 1}, {"step": 2, "end": 1}], count=count))
    assert read(file).steps["step"].to_list() == steps


def test_damaged_rings_give_rows_or_an_error(path, tmp_path):
    whole = bytearray(path.read_bytes())
    random = np.random.default_rng(4)
    file = tmp_path / "b.ring"
    for number in range(150):
        damaged = bytearray(whole)
        for place in random.integers(0, layout.HEAD_BYTES + 2000 if number % 2 else 64, 6):
            damaged[place] = int(random.integers(256))
        file.write_bytes(damaged[: random.integers(len(damaged))] if number % 5 == 0 else damaged)
        with contextlib.suppress(CaptureError):
            read(file)


def test_a_ring_of_another_version_is_refused(tmp_path):
    file = tmp_path / "a.ring"
    content = bytearray(ring_bytes([]))
    content[8] = 99
    file.write_bytes(content)
    with pytest.raises(CaptureError, match="not a ring"):
        read(file)

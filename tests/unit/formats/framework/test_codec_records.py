# SPDX-License-Identifier: Apache-2.0
"""The C++ kernel reads framework records exactly as numpy does, damaged ones too."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest
from framework_examples import EXAMPLES, vector
from polars.testing import assert_frame_equal

from stepscope.formats.framework import codec_records
from stepscope.formats.framework.layouts import KINDS
from stepscope.formats.framework.records import decode, encode

pytestmark = pytest.mark.usefixtures("kernels")


def read(kind: str, data: bytes, switch: str) -> tuple[pl.DataFrame, list[tuple[object, ...]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSCOPE_KERNELS", switch)
        rows, losses = decode(KINDS[kind], np.frombuffer(data, np.uint8), "file")
    return rows, pl.concat(losses).rows()


def assert_same(kind: str, data: bytes) -> None:
    found, said = read(kind, data, "")
    wanted, numpy_said = read(kind, data, "0")
    assert_frame_equal(found, wanted, check_exact=True)
    assert said == numpy_said


def many(kind: str) -> bytes:
    rows = vector()[kind]
    return b"".join(encode(KINDS[kind], pl.concat([rows] * 20)))


def damaged(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed) or 1)
        match chance.randrange(4):
            case 0:
                changed[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del changed[at : at + chance.randrange(1, 9)]
            case 2:
                changed[at:at] = changed[: chance.randrange(1, 40)]
            case _:
                changed = changed[:at] if chance.random() < 0.3 else changed
    return bytes(changed)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_all_generations(name):
    kind, data, _ = EXAMPLES[name]
    assert_same(kind, data)
    assert_same(kind, b"")


@pytest.mark.parametrize("kind", KINDS)
def test_damage(kind):
    chance = random.Random(kind)
    data = many(kind)
    for _ in range(150):
        assert_same(kind, damaged(data, chance))


def test_a_field_twice_and_texts_of_all_lengths():
    rows = pl.DataFrame({"time": range(40), "name": ["é" * (number // 2) + "x" * (number % 2) for number in range(40)]})
    data = b"".join(encode(KINDS["op_mark"], rows))
    assert read("op_mark", data, "")[0]["name"].to_list() == rows["name"].to_list()
    # The second name of a record counts.
    twice = bytearray(b"".join(encode(KINDS["op_mark"], rows[20:21])))
    twice += b"\x01\x00\x02\x00\x00\x00ab"
    twice[2:6] = (len(twice) - 6).to_bytes(4, "little")
    assert read("op_mark", bytes(twice), "")[0]["name"].to_list() == ["ab"]
    assert_same("op_mark", bytes(twice))


def test_the_kernel_is_what_reads(monkeypatch):
    data = np.frombuffer(many("op_range"), np.uint8)
    monkeypatch.delenv("STEPSCOPE_KERNELS", raising=False)
    found = codec_records.find_records(data, 57)
    assert found is not None
    assert found.size == 20 * vector()["op_range"].height
    layout = KINDS["op_range"].layouts[0]
    assert codec_records.read_columns(data, layout, found + 6, np.full(found.size, 58)) is not None
    # Records that do not lie inside the data, or are shorter than their fixed part, are refused.
    assert codec_records.read_columns(data, layout, np.array([data.size - 57]), np.array([58])) is None
    assert codec_records.read_columns(data, layout, np.array([0]), np.array([57])) is None
    assert codec_records.read_columns(data, layout, np.array([-1]), np.array([58])) is None

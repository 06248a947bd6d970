# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers as bytes that a browser reads without a library: `application/x-cols` (docs/http_api.md, tiles)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

MAGIC = b"COLS"
MEDIA_TYPE = "application/x-cols"
_TYPES = {"f8": "f64", "f4": "f32", "u4": "u32", "u8": "u64", "i4": "i32", "i8": "i64"}
_DTYPES = {word: np.dtype(f"<{code}") for code, word in _TYPES.items()}

Frame = Mapping[str, npt.NDArray[Any]]


def encode(frames: Sequence[Frame]) -> bytes:
    """One answer of several frames; the columns of a frame have one length."""
    header = {
        "frames": [{"n": _length(frame), "cols": [[name, _word(column)] for name, column in frame.items()]} for frame in frames]
    }
    text = orjson.dumps(header)
    parts = [MAGIC, struct.pack("<I", len(text)), _padded(text, 8)]
    for frame in frames:
        parts += [_padded(np.ascontiguousarray(column).tobytes()) for column in frame.values()]
    return b"".join(parts)


def decode(data: bytes) -> list[dict[str, npt.NDArray[Any]]]:
    """The frames of an answer."""
    if data[:4] != MAGIC:
        raise ValueError("not an x-cols answer")
    (length,) = struct.unpack("<I", data[4:8])
    at = 8 + length + -length % 8
    frames = []
    for frame in orjson.loads(data[8 : 8 + length])["frames"]:
        columns = {}
        for name, word in frame["cols"]:
            column = np.frombuffer(data, _DTYPES[word], frame["n"], at)
            at += column.nbytes + -column.nbytes % 8
            columns[name] = column
        frames.append(columns)
    return frames


def _length(frame: Frame) -> int:
    lengths = {len(column) for column in frame.values()}
    assert len(lengths) == 1, "columns of one frame have one length"
    return lengths.pop()


def _word(column: npt.NDArray[Any]) -> str:
    assert column.dtype.byteorder in "<=|", "little endian"
    return _TYPES[column.dtype.str[1:]]


def _padded(data: bytes, before: int = 0) -> bytes:
    return data + bytes(-(len(data) + before) % 8)

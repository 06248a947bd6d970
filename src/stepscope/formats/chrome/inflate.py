# SPDX-License-Identifier: Apache-2.0
"""A file as blocks of bytes, gzip or not; a damaged gzip stream gives what comes before the damage."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from stepscope.errors import CaptureError
from stepscope.formats import bytes_read
from stepscope.tables import issues
from stepscope.tables.issues import Issue

Note = Callable[[Issue, int, str], None]

_GZIP_MAGIC = b"\x1f\x8b"
_PACKED_BYTES = 1 << 20
_GZIP_FORMAT = 31  # zlib's number for "gzip header, largest window"
# Traces pack 10 to 60 times, a file made to fill the memory up to 1,030 times.
_MOST_RATIO = 200
_MOST_BYTES = 64 << 30
_TRUSTED_BYTES = 64 << 20  # unpacked without looking at the ratio


def blocks(path: Path, size: int, note: Note, most_bytes: int | None = None) -> Iterator[bytes]:
    """Yield blocks of about `size` bytes; `note(issue, count, detail)` is called for bytes that could not be unpacked.

    Raises:
        CaptureError: it unpacks to more than `most_bytes`, or to far more than a trace would.
    """
    with path.open("rb") as file:
        magic = file.read(2)
        file.seek(0)
        if magic == _GZIP_MAGIC:
            yield from _inflate(file, path, size, note, most_bytes)
        else:
            while block := file.read(size):
                yield block
                bytes_read.note(path, file.tell())


def _refuse_bomb(path: Path, total: int, packed: int, most_bytes: int | None) -> None:
    if most_bytes is not None and total > most_bytes:
        raise CaptureError(
            "the file unpacks to more than --max-memory allows",
            where=str(path),
            cause=f"its first {packed:,} bytes gave {total:,}; the limit is {most_bytes:,}",
            fix="allow more with --max-memory, or leave the option out",
        )
    if total <= _TRUSTED_BYTES or (total <= _MOST_BYTES and total <= _MOST_RATIO * packed):
        return
    raise CaptureError(
        "the file unpacks to far more than a trace",
        where=str(path),
        cause=f"its first {packed:,} bytes gave {total:,}; a trace packs 10 to 60 times",
        fix="if it is a trace all the same, unpack it with gunzip and give the result",
    )


def _inflate(file: BinaryIO, path: Path, size: int, note: Note, most_bytes: int | None) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP_FORMAT)
    waiting, packed = b"", b""
    ready: list[bytes] = []
    amount, fresh = 0, False
    total = 0
    while waiting or (packed := file.read(_PACKED_BYTES)):
        try:
            part = unpacker.decompress(waiting or packed, size)
        except zlib.error as fault:
            note(issues.UNREADABLE_BYTES, len(waiting or packed), f"packed, from the damage to the end of the block: {fault}")
            break
        waiting = unpacker.unconsumed_tail
        fresh = unpacker.eof
        if fresh:  # gzip files may be several streams one after the other
            waiting, unpacker = unpacker.unused_data, zlib.decompressobj(_GZIP_FORMAT)
        ready.append(part)
        amount += len(part)
        total += len(part)
        _refuse_bomb(path, total, file.tell() - len(waiting), most_bytes)
        if amount >= size:
            yield b"".join(ready)
            bytes_read.note(path, file.tell() - len(waiting))
            ready, amount = [], 0
    else:
        note(issues.TRUNCATED_FILE, int(not fresh), "inside its gzip stream")
    if amount:
        yield b"".join(ready)
    bytes_read.note(path)

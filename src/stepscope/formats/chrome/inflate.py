# SPDX-License-Identifier: Apache-2.0
"""A file as blocks of bytes, gzip or not; a damaged gzip stream gives what comes before the damage."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from stepscope.tables import issues
from stepscope.tables.issues import Issue

Note = Callable[[Issue, int, str], None]

_GZIP_MAGIC = b"\x1f\x8b"
_PACKED_BYTES = 1 << 20
_GZIP_FORMAT = 31  # zlib's number for "gzip header, largest window"


def blocks(path: Path, size: int, note: Note) -> Iterator[bytes]:
    """Yield blocks of about `size` bytes; `note(issue, count, detail)` is called for bytes that could not be unpacked."""
    with path.open("rb") as file:
        magic = file.read(2)
        file.seek(0)
        if magic == _GZIP_MAGIC:
            yield from _inflate(file, size, note)
        else:
            while block := file.read(size):
                yield block


def _inflate(file: BinaryIO, size: int, note: Note) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP_FORMAT)
    waiting, packed = b"", b""
    ready: list[bytes] = []
    amount, fresh = 0, False
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
        if amount >= size:
            yield b"".join(ready)
            ready, amount = [], 0
    else:
        note(issues.TRUNCATED_FILE, int(not fresh), "inside its gzip stream")
    if amount:
        yield b"".join(ready)

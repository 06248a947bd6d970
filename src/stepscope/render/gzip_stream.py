# SPDX-License-Identifier: Apache-2.0
"""A file that is compressed while it is written."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from stepscope.render.atomic import ByteSink

_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LEVEL = 4  # level 6 takes twice the time for 8 % less


class _Gzip:
    """One gzip stream; the events come in large pieces, so each is compressed as it comes."""

    def __init__(self, handle: ByteSink):
        self._handle = handle
        self._pack = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._check, self._size = 0, 0
        handle.write(memoryview(_GZIP_HEADER))

    def write(self, data: memoryview, /) -> None:
        self._check = zlib.crc32(data, self._check)
        self._size += len(data)
        self._handle.write(memoryview(self._pack.compress(data)))

    def finish(self) -> None:
        self._handle.write(memoryview(self._pack.flush()))
        tail = self._check.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little")
        self._handle.write(memoryview(tail))


@contextmanager
def packed(handle: ByteSink, compressed: bool) -> Iterator[ByteSink]:
    """Where to write so that the file is compressed, or not."""
    if not compressed:
        yield handle
        return
    stream = _Gzip(handle)
    yield stream
    stream.finish()

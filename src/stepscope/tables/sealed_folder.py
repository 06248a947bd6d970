# SPDX-License-Identifier: Apache-2.0
"""A folder whose manifest holds a checksum of every file in it, and of itself: what was damaged is never taken for data.

Truncated files, flipped bytes of unchanged size and date, foreign files and manifests of any content are all one case,
`Damaged`. The checksum is XXH3: 25 ms for the 270 MB of a million operators.

Files are mapped, and reading a page that somebody has cut off since would end the process (SIGBUS). A process that has called
`keep_what_is_cut` holds a lease on what it maps: the kernel lets the other one wait until a copy is in the place of the mapping.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import signal
import stat
import struct
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import xxhash

if TYPE_CHECKING:
    import ctypes

MANIFEST = "manifest.json"
MODE = 0o640
_MOST_MANIFEST_BYTES = 1 << 28
_MAPPED_BYTES = 1 << 20  # files below it are read: that is as quick, and nothing can be cut off what was read
_READ_BYTES = 1 << 18  # at once; stays in the cache of the processor
_MAYMOVE_FIXED = 1 | 2  # flags of mremap
_NO_ADDRESS = (1 << 8 * struct.calcsize("P")) - 1  # what mmap answers when it cannot

_leases: dict[int, tuple[weakref.ref[Any], int]] = {}  # by address: what is mapped there, and its descriptor
_keeping = False


class Damaged(Exception):
    """Something in the folder is not what was written."""


def seal(folder: Path, content: dict[str, Any]) -> None:
    """Write the manifest: `content`, and size and checksum of every file that is in the folder now."""
    files = {}
    for path in sorted(folder.iterdir()):
        os.chmod(path, MODE)
        data = _map(path)
        files[path.name] = [len(data), xxhash.xxh3_64_hexdigest(data)]
    sealed = {"content": content, "files": files}
    whole = {**sealed, "checksum": xxhash.xxh3_64_hexdigest(orjson.dumps(sealed))}
    (folder / MANIFEST).write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2))
    os.chmod(folder / MANIFEST, MODE)


class SealedFolder:
    """A folder that was sealed, opened; each file is checked when it is asked for."""

    def __init__(self, folder: Path):
        self.folder = folder
        try:
            whole = orjson.loads(bytes(_map(folder / MANIFEST, _MOST_MANIFEST_BYTES)))
        except orjson.JSONDecodeError as problem:
            raise Damaged(MANIFEST) from problem
        if not isinstance(whole, dict) or set(whole) != {"content", "files", "checksum"}:
            raise Damaged(MANIFEST)
        checksum = whole.pop("checksum")
        if xxhash.xxh3_64_hexdigest(orjson.dumps(whole)) != checksum:
            raise Damaged(MANIFEST)
        self.content: dict[str, Any] = whole["content"]
        self._files: dict[str, list[Any]] = whole["files"]

    def data(self, name: str) -> memoryview:
        """The bytes of a file, mapped, when they are those that were written."""
        if name not in self._files:
            raise Damaged(name)
        checksum = xxhash.xxh3_64()
        data = _map(self.folder / name, checksum=checksum)
        if [len(data), checksum.hexdigest()] != self._files[name]:
            raise Damaged(name)
        return data


def _map(path: Path, most: int | None = None, checksum: xxhash.xxh3_64 | None = None) -> memoryview:
    """The bytes of a file. For `checksum` they are read beside the mapping: what is only checked takes no memory."""
    try:
        # Not blocking: a pipe in the place of a file would wait for somebody to write into it.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or (most is not None and status.st_size > most):
                raise Damaged(path.name)
            small = memoryview(_read(file)) if status.st_size < _MAPPED_BYTES else None
            data = _mapped(file) if small is None else small
            if checksum is not None:
                _add(checksum, file, small, len(data))
            return data
        finally:
            os.close(file)
    except (OSError, ValueError) as problem:  # ValueError: emptied in between
        raise Damaged(path.name) from problem


def keep_what_is_cut() -> None:
    """From now on, files that this process maps stay whole for it. For programs of ours alone: it takes a signal (SIGIO)."""
    global _keeping
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGIO) is signal.SIG_DFL:
        signal.signal(signal.SIGIO, _copy_what_is_cut)
        _keeping = True


def _mapped(file: int) -> memoryview:
    return (_leased(file) if _keeping else None) or memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_READ))


def _add(checksum: xxhash.xxh3_64, file: int, read: memoryview | None, size: int) -> None:
    if read is not None:
        checksum.update(read)
        return
    buffer = memoryview(bytearray(_READ_BYTES))
    at = 0
    while at < size and (count := os.preadv(file, [buffer[: size - at]], at)):
        checksum.update(buffer[:count])
        at += count


def _read(file: int) -> bytes:
    with os.fdopen(os.dup(file), "rb") as stream:
        return stream.read()


def _leased(file: int) -> memoryview | None:
    """The file, mapped under a lease; None where leases cannot be had: on NFS, and of files of other users."""
    import ctypes

    held = os.dup(file)  # of the same opening, which has the lease
    try:
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as problem:
        os.close(held)
        return memoryview(_read(file)) if problem.errno == errno.EAGAIN else None  # somebody has it open to write
    size = os.fstat(held).st_size  # from here on it stays
    address = _libc().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, held, 0) if size else _NO_ADDRESS
    if address == _NO_ADDRESS:
        os.close(held)
        return None
    array = (ctypes.c_char * size).from_address(address)
    _leases[address] = weakref.ref(array), held
    weakref.finalize(array, _unmap, address, size).atexit = False
    return memoryview(array).cast("B").toreadonly()


def _unmap(address: int, size: int) -> None:
    _, held = _leases.pop(address, (None, None))
    _libc().munmap(address, size)
    if held is not None:
        os.close(held)


def _copy_what_is_cut(*_: object) -> None:
    """Put a copy in the place of each mapping whose file somebody waits for; who reads it at this moment sees the same bytes."""
    import ctypes

    libc = _libc()
    for address, (reference, held) in list(_leases.items()):
        array = reference()  # held until the end of the round, so that nobody unmaps it
        if array is None or fcntl.fcntl(held, fcntl.F_GETLEASE) == fcntl.F_RDLCK:
            continue
        size = len(array)
        copy = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if copy != _NO_ADDRESS:
            ctypes.memmove(copy, address, size)
            libc.mremap(copy, size, size, _MAYMOVE_FIXED, ctypes.c_void_p(address))
        del _leases[address]
        with suppress(OSError):  # broken by force, after 45 s
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.close(held)


def _libc() -> ctypes.CDLL:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mremap.restype = ctypes.c_void_p, ctypes.c_void_p
    number, size = ctypes.c_int, ctypes.c_size_t
    libc.mmap.argtypes = [ctypes.c_void_p, size, number, number, number, ctypes.c_long]
    libc.mremap.argtypes = [ctypes.c_void_p, size, size, number, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, size]
    return libc

# SPDX-License-Identifier: Apache-2.0
"""Unpack a pack: plain files below one folder, as many and as large as its list says, with the checksums of the list.

A pack may come from anybody, so its tar records are read here: regular files and folders only, with names that stay inside.
The reader of the standard library would follow extension records of any length first.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from stepscope.errors import CaptureError, printable
from stepscope.formats.pack import LIST, VERSION
from stepscope.tables.whole_folder import replacing_folder

MOST_FILES = 200_000
MOST_NAME = 4096
MOST_LIST = 64 << 20
FREE_BYTES = 64 << 20  # unpacked bytes for which the ratio is not asked
MOST_RATIO = 1000
_BLOCK = 512
_CHUNK = 1 << 20
_FILE, _OLD_FILE, _FOLDER, _LONG_NAME = b"0", b"\0", b"5", b"L"


@dataclass(frozen=True)
class Member:
    """One file of a pack; its bytes follow in the stream."""

    name: str
    size: int


def unpack(pack: Path, target: Path) -> dict[str, Any]:
    """Put the content of `pack` into the new folder `target`, which is whole or absent; return the list of the pack."""
    import pyarrow as pa

    try:
        with replacing_folder(target) as new, pack.open("rb") as file, pa.CompressedInputStream(file, "zstd") as stream:
            return _Unpacking(pack, stream, new).all()
    except (OSError, EOFError, pa.ArrowException) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:  # of the disk, not of the data
            raise CaptureError(f"cannot unpack {pack.name}", where=str(target), cause=str(problem)) from problem
        _refuse(pack, f"not a whole .tar.zst file: {problem}")


def read_list(pack: Path) -> dict[str, Any]:
    """What a pack says it holds, without unpacking the rest."""
    import pyarrow as pa

    try:
        with pack.open("rb") as file, pa.CompressedInputStream(file, "zstd") as stream:
            return _Unpacking(pack, stream, pack.parent).listed()
    except (OSError, EOFError, pa.ArrowException) as problem:
        _refuse(pack, f"not a whole .tar.zst file: {problem}")


class _Unpacking:
    """One walk through the stream of a pack."""

    def __init__(self, pack: Path, stream: BinaryIO, folder: Path):
        self.pack = pack
        self.stream = stream
        self.folder = folder
        self.most = max(FREE_BYTES, MOST_RATIO * pack.stat().st_size)
        self.seen_bytes = 0

    def all(self) -> dict[str, Any]:
        content = self.listed()
        self._require_space(content)
        expected: dict[str, list[Any]] = dict(content["files"])
        for member in self._members():
            size, checksum = expected.pop(member.name, [None, None])
            if size != member.size:
                _refuse(self.pack, f"{member.name} is not in its list, is there twice, or has another size")
            if self._write(member) != checksum:
                _refuse(self.pack, f"{member.name} is damaged: its checksum is another one")
        if expected:
            _refuse(self.pack, f"{len(expected)} files are missing, such as {min(expected)}")
        return content

    def listed(self) -> dict[str, Any]:
        import orjson

        first = next(self._members(), None)
        if first is None or first.name != LIST or first.size > MOST_LIST:
            _refuse(self.pack, f"its first file is not {LIST}")
        try:
            content = orjson.loads(self._bytes(first.size))
            self._skip_padding(first.size)
            version, files = content["version"], content["files"]
            good = all(isinstance(size, int) and isinstance(checksum, str) for size, checksum in files.values())
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            _refuse(self.pack, f"{LIST} is not valid")
        if version != VERSION:
            raise CaptureError(
                f"this pack has version {version}, and this stepscope reads version {VERSION}",
                where=str(self.pack),
                fix="update stepscope",
            )
        if not good or len(files) > MOST_FILES:
            _refuse(self.pack, f"{LIST} is not valid")
        return dict(content)

    def _require_space(self, content: dict[str, Any]) -> None:
        needed = sum(size for size, _ in content["files"].values())
        if needed > self.most:
            _refuse(self.pack, f"it would give {needed:,} bytes, more than {MOST_RATIO} times its own size")
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise CaptureError(
                f"no space to unpack {self.pack.name}",
                where=str(self.folder.parent),
                cause=f"it needs {needed:,} bytes, {free:,} are free",
                fix="free some space, or name a folder on another disk: stepscope unpack PACK --out DIR",
            )

    def _members(self) -> Iterator[Member]:
        name = ""
        for _ in range(2 * MOST_FILES):
            head = self._bytes(_BLOCK)
            if not head.strip(b"\0"):
                return
            kind, size = head[156:157], self._head_size(head)
            if kind == _LONG_NAME:
                if size > MOST_NAME:
                    _refuse(self.pack, "a name is too long")
                name = self._text(self._bytes(size))
                self._skip_padding(size)
                continue
            prefix = self._text(head[345:500]) if head[257:263] == b"ustar\0" else ""
            name = name or (f"{prefix}/" if prefix else "") + self._text(head[:100])
            if kind == _FOLDER:
                self._inside(name.rstrip("/"))
            elif kind in (_FILE, _OLD_FILE):
                self._inside(name)
                yield Member(name, size)
            else:
                _refuse(self.pack, f"{printable(name)} is neither a file nor a folder")
            name = ""
        _refuse(self.pack, f"it holds more than {MOST_FILES:,} files")

    def _head_size(self, head: bytes) -> int:
        try:
            checksum = int(head[148:156].split(b"\0")[0].strip() or b"0", 8)
            size = int.from_bytes(head[125:136], "big") if head[124] == 0x80 else int(head[124:136].strip(b" \0") or b"0", 8)
        except ValueError:
            _refuse(self.pack, "a record of the tar file is damaged")
        if sum(head) - sum(head[148:156]) + 8 * 32 != checksum or size < 0:
            _refuse(self.pack, "a record of the tar file is damaged")
        return size

    def _text(self, raw: bytes) -> str:
        try:
            return raw.split(b"\0")[0].decode()
        except UnicodeDecodeError:
            _refuse(self.pack, "a name is not UTF-8")

    def _inside(self, name: str) -> Path:
        parts = name.split("/")
        if not name or len(name) > MOST_NAME or any(part in ("", ".", "..") for part in parts):
            _refuse(self.pack, f"{printable(name)!r} leads out of the pack")
        if any(ord(letter) < 32 or letter == "\\" for letter in name):
            _refuse(self.pack, f"{printable(name)!r} is not a name of a file")
        return self.folder.joinpath(*parts)

    def _write(self, member: Member) -> str:
        path = self._inside(member.name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        checksum, rest = hashlib.sha256(), member.size
        # Exclusive: a name that differs only where the disk sees no difference would replace another file.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb") as file:
            while rest:
                chunk = self._bytes(min(rest, _CHUNK))
                checksum.update(chunk)
                file.write(chunk)
                rest -= len(chunk)
        self._skip_padding(member.size)
        return checksum.hexdigest()

    def _skip_padding(self, size: int) -> None:
        self._bytes(-size % _BLOCK)

    def _bytes(self, count: int) -> bytes:
        self.seen_bytes += count
        if self.seen_bytes > self.most + MOST_LIST:
            _refuse(self.pack, f"it gives more than {MOST_RATIO} times its own size")
        data = self.stream.read(count)
        if len(data) != count:
            raise EOFError("it ends too early")
        return bytes(data)


def _refuse(pack: Path, cause: str) -> NoReturn:
    raise CaptureError(
        f"{pack.name} cannot be unpacked",
        where=str(pack),
        cause=cause,
        fix="ask for it again; packs are made by stepscope pack",
    )

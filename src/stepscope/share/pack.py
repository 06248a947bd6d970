# SPDX-License-Identifier: Apache-2.0
"""Pack captures into one `.tar.zst` file: files by rank and name, owner and dates left out, a list with checksums first.

The same captures give the same bytes. What is redacted is packed as tables, because only there every name can be found.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from stepscope.capture import Capture
from stepscope.errors import CaptureError
from stepscope.formats.ascend_capture.capture_folder import OUTPUT
from stepscope.formats.pack import LIST, SUFFIX, VERSION
from stepscope.render.atomic import refuse_symlink, replacing
from stepscope.share.redact import KINDS, Redaction
from stepscope.share.stores import rank_names
from stepscope.tables.store import write_store

WHAT = ("raw", "text", "store")
_LEFT_OUT = ("logs", "__pycache__")  # nothing is read from them, and they name machines
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Packed:
    """What was written."""

    path: Path
    captures: int
    files: int
    bytes_before: int
    bytes_after: int


def pack(captures: Sequence[Capture], target: Path, *, what: Sequence[str] = ("raw", "text"), redact: Sequence[str] = ()) -> Packed:
    """Write captures into one file that `stepscope unpack` and all commands read.

    Args:
        captures: of one run, or of several.
        target: the file; its name must end in .tar.zst.
        what: `raw` records and traces, `text` results of analyses, `store`: the tables, which open fastest.
        redact: kinds of names to take out: paths, hosts, stacks, metadata. Only tables are packed then.
    """
    if not target.name.endswith(SUFFIX):
        raise CaptureError(f"a pack is a {SUFFIX} file", where=str(target), fix=f"--out {target.with_suffix('')}{SUFFIX}")
    unknown = [word for word in redact if word not in KINDS] + [word for word in what if word not in WHAT]
    if unknown:
        raise CaptureError(f"unknown word {unknown[0]!r}", fix=f"redact {', '.join(KINDS)}; pack {', '.join(WHAT)}")
    refuse_symlink(target)
    with tempfile.TemporaryDirectory(prefix="stepscope-pack-") as place:
        files = _stores(captures, Path(place), redact) if redact or "store" in what else {}
        if not redact:
            files |= _plain_files(captures, what)
        if not files:
            raise CaptureError(f"these captures have no {' or '.join(what)} files", fix="pack --what raw,text,store")
        return _write(captures, files, target, redact)


def _stores(captures: Sequence[Capture], place: Path, redact: Sequence[str]) -> dict[str, Path]:
    every = [capture.tables for capture in captures]
    if redact:
        every = Redaction(frozenset(redact), every, [capture.path for capture in captures]).all()
    files: dict[str, Path] = {}
    for name, tables in zip(rank_names(every), every, strict=True):
        write_store(place / name, tables, [])
        files |= {f"{name}/{path.name}": path for path in (place / name).iterdir()}
    return files


def _plain_files(captures: Sequence[Capture], what: Sequence[str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    taken: set[str] = set()
    for capture in captures:
        root = capture.path
        name = root.name
        for number in range(2, len(captures) + 2):
            if name not in taken:
                break
            name = f"{number}_{root.name}"
        taken.add(name)
        if root.is_file():
            files |= {name: root} if "raw" in what else {}
            continue
        for path in sorted(root.rglob("*")):
            parts = path.relative_to(root).parts
            if path.is_symlink() or not path.is_file() or parts[0] in _LEFT_OUT or any(part.startswith(".") for part in parts):
                continue
            if ("text" if parts[0] == OUTPUT else "raw") in what:
                files["/".join((name, *parts))] = path
    return files


def _write(captures: Sequence[Capture], files: dict[str, Path], target: Path, redact: Sequence[str]) -> Packed:
    from stepscope import __version__

    listed: dict[str, tuple[int, str]] = {name: (files[name].stat().st_size, _checksum(files[name])) for name in sorted(files)}
    content: dict[str, Any] = {
        "version": VERSION,
        "written_by": f"stepscope {__version__}",
        "ranks": sorted({capture.facts.rank for capture in captures if capture.facts.rank >= 0}),
        "steps": sorted({step for capture in captures for step in capture.tables.steps["step"].drop_nulls().to_list()}),
        "redacted": sorted(redact),
        "files": listed,
    }
    with (
        replacing(target) as handle,
        pa.CompressedOutputStream(handle, "zstd") as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as tar,
    ):
        text = orjson.dumps(content, option=orjson.OPT_INDENT_2)
        _add(tar, LIST, io.BytesIO(text), len(text))
        for name, (size, _) in listed.items():
            with files[name].open("rb") as file:
                _add(tar, name, file, size)
    before = sum(size for size, _ in listed.values())
    return Packed(target, len(captures), len(listed), before, target.stat().st_size)


def _add(tar: tarfile.TarFile, name: str, file: BinaryIO, size: int) -> None:
    member = tarfile.TarInfo(name)  # owner 0, date 0
    member.size, member.mode = size, 0o640
    tar.addfile(member, file)


def _checksum(path: Path) -> str:
    checksum = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum.update(chunk)
    return checksum.hexdigest()

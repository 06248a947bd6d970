# SPDX-License-Identifier: Apache-2.0
"""The on-disk store: one Arrow file per table and a manifest with checksums, built once, opened by memory map.

A store is complete or absent: it is built in a folder of another name and renamed when whole.
It is stale when the program, its schema or any source file (size, mtime) changed; what is damaged is built again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from stepscope import __version__
from stepscope.errors import CaptureError, printable
from stepscope.tables import issues
from stepscope.tables.limits import within_limits
from stepscope.tables.sealed_folder import MANIFEST, Damaged, SealedFolder, seal
from stepscope.tables.tableset import ALL_TABLES, Tables, lost
from stepscope.tables.union import REFERENCES
from stepscope.tables.whole_folder import replacing_folder

SMALL_BYTES = 16 << 20  # bytes of a store that are read sooner than what would map them is loaded
SCHEMA_VERSION = 12
STORE_NAME = ".stepscope"
# A store is built again by a later version of the program, whose readers may know better.
_MADE_BY = {"schema_version": SCHEMA_VERSION, "program": __version__}


def fingerprint(sources: Iterable[Path], root: Path) -> list[list[Any]]:
    """Size and mtime of every source file, by path below the capture."""
    rows = []
    for path in sorted(sources):
        status = path.stat()
        name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
        rows.append([printable(name), status.st_size, status.st_mtime_ns])
    return rows


def store_folder(capture: Path) -> Path:
    """Beside the capture's data when that is writable, else in the user's cache."""
    # Not with the suffix of the trace: other tools take every `*.json.gz` of a folder for one, also a folder.
    beside = capture / STORE_NAME if capture.is_dir() else capture.with_name(f"{STORE_NAME}.{capture.name}.store")
    if _writable(beside.parent):
        return beside
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "stepscope" / hashlib.sha256(os.fsencode(capture.resolve())).hexdigest()[:24]


def _writable(folder: Path) -> bool:
    # The superuser may write anywhere; a folder without any write permission is left alone all the same.
    return os.access(folder, os.W_OK) and bool(folder.stat().st_mode & 0o222)


def write_store(folder: Path, tables: Tables, sources: list[list[Any]]) -> None:
    """Replace the store at `folder` with these tables; a failure half way leaves the old one in place."""
    with replacing_folder(folder) as new:
        rows = {}
        for name in tables.filled():
            tables[name].write_ipc(new / f"{name}.arrow", compression="uncompressed")
            rows[name] = tables[name].height
        seal(new, {**_MADE_BY, "sources": sources, "rows": rows})


def size(tables: Tables) -> int:
    """About how many bytes the store of these tables takes."""
    return int(sum(tables[name].estimated_size() for name in tables.filled()))


def is_fresh(folder: Path, sources: list[list[Any]]) -> bool:
    """Whether a store of these sources, made by this program, is there; its files are checked when it is opened."""
    try:
        return _is_of(SealedFolder(folder).content, sources)
    except (Damaged, KeyError, TypeError):
        return False


def _is_of(content: Mapping[str, Any], sources: list[list[Any]] | None) -> bool:
    ours = all(content[name] == value for name, value in _MADE_BY.items())
    return ours and (sources is None or content["sources"] == sources)


def read_store(folder: Path, sources: list[list[Any]] | None) -> Tables | None:
    """Open the store, or return None when it is absent, damaged, of another version or stale."""
    try:
        store = SealedFolder(folder)
        content = store.content
        if not _is_of(content, sources):
            return None
        data = {name: store.data(f"{name}.arrow") for name in content["rows"]}
        opened = _copy if sum(map(len, data.values())) < SMALL_BYTES else _map
        return Tables({name: opened(part) for name, part in data.items()})
    except (Damaged, KeyError, TypeError):  # the last two: sealed, but by another program
        return None


def is_store(folder: Path) -> bool:
    """Whether a folder holds tables and their manifest; its files are checked when it is opened."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            return b'"schema_version"' in file.read(4096)
    except OSError:
        return False


def open_store(folder: Path) -> Tables:
    """Open a store that is a capture of its own: nothing is left from which it could be built again.

    Raises:
        CaptureError: a file is damaged, or holds what no table holds.
    """
    try:
        store = SealedFolder(folder)
        version = store.content["schema_version"]
        names = [name for name in store.content["rows"] if name in ALL_TABLES]
        frames = {name: _map(store.data(f"{name}.arrow")) for name in names}
        if version != SCHEMA_VERSION:
            # Columns that came later are null, those that are gone are left out.
            frames = {name: ALL_TABLES[name].conform(frame) for name, frame in frames.items()}
        tables = within_limits(Tables(frames).check())
        tables.facts.check()
        _check_references(tables)
    except (Damaged, KeyError, TypeError, ValueError, OSError, pl.exceptions.PolarsError) as problem:
        raise CaptureError(
            "the tables of this capture are damaged",
            where=str(folder),
            cause=f"{type(problem).__name__}: {problem}",
            fix="copy or unpack it again; there are no other data in it",
        ) from problem
    detail = f"version {version} of the tables, read as version {SCHEMA_VERSION}"
    return tables.with_quality(lost(issues.STORE_OF_OTHER_VERSION, str(folder), int(version != SCHEMA_VERSION), detail))


def _check_references(tables: Tables) -> None:
    """Row numbers lie inside the tables that they point to: a store may come from anybody."""
    for (name, column), target in REFERENCES.items():
        numbers = tables[name][column]
        if numbers.null_count() < numbers.len():
            least, most = numbers.min(), numbers.max()
            if not (isinstance(least, int) and isinstance(most, int) and 0 <= least <= most < tables[target].height):
                raise ValueError(f"{name}.{column} points outside {target}")


def _copy(data: memoryview) -> pl.DataFrame:
    return pl.read_ipc(BytesIO(data))


def _map(data: memoryview) -> pl.DataFrame:
    import pyarrow as pa  # a quarter of the time in which a small capture is shown

    frame = pl.from_arrow(pa.ipc.open_file(pa.py_buffer(data)).read_all())
    assert isinstance(frame, pl.DataFrame)
    return frame

# SPDX-License-Identifier: Apache-2.0
"""The on-disk store: one Arrow file per table and a manifest, built once, opened by memory map.

A store is complete or absent: it is built in a folder of another name and renamed when whole.
It is stale when the version of the schema or any source file (size, mtime) changed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pyarrow as pa

from stepscope.errors import printable
from stepscope.tables.tableset import ALL_TABLES, Tables
from stepscope.tables.whole_folder import replacing_folder

SCHEMA_VERSION = 7
STORE_NAME = ".stepscope"
MANIFEST = "manifest.json"


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
    beside = capture / STORE_NAME if capture.is_dir() else capture.with_name(f"{STORE_NAME}.{capture.name}")
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
            os.chmod(new / f"{name}.arrow", 0o640)
            rows[name] = tables[name].height
        manifest = {"schema_version": SCHEMA_VERSION, "sources": sources, "rows": rows}
        (new / MANIFEST).write_bytes(orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
        os.chmod(new / MANIFEST, 0o640)


def read_store(folder: Path, sources: list[list[Any]] | None) -> Tables | None:
    """Open the store, or return None when it is absent, damaged, of another version or stale."""
    try:
        manifest = orjson.loads((folder / MANIFEST).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    if manifest.get("schema_version") != SCHEMA_VERSION or (sources is not None and manifest.get("sources") != sources):
        return None
    frames = {}
    for name in manifest.get("rows", {}):
        try:
            frames[name] = _open(folder / f"{name}.arrow")
        except (OSError, pa.ArrowInvalid, pl.exceptions.PolarsError):
            return None
        if name not in ALL_TABLES or frames[name].height != manifest["rows"][name]:
            return None
    return Tables(frames)


def _open(path: Path) -> pl.DataFrame:
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame

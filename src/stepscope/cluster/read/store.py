# SPDX-License-Identifier: Apache-2.0
"""Digests on disk: one file per rank beside its capture, or all ranks of a run as one Parquet file per table."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from stepscope.cluster.digest import Digests
from stepscope.errors import CaptureError
from stepscope.tables.cluster import CLUSTER_TABLES, DIGEST_VERSION
from stepscope.tables.schema import SchemaError

FILE = f"digest-v{DIGEST_VERSION}.arrow"
_KEY = b"stepscope.digest"


def to_bytes(digests: Digests, key: Any = None) -> bytes:
    """Digests as one Arrow file of one row: a column of bytes per table, the key in the schema's metadata."""
    import pyarrow as pa  # here, because digests from small files are not kept

    columns, names = [], []
    for name, frame in digests.frames.items():
        buffer = io.BytesIO()
        frame.write_ipc(buffer, compression="lz4")
        columns.append(pa.array([buffer.getvalue()], type=pa.large_binary()))
        names.append(name)
    head = orjson.dumps({"version": DIGEST_VERSION, "key": key}, option=orjson.OPT_SORT_KEYS)
    table = pa.table(columns, schema=pa.schema([(name, pa.large_binary()) for name in names], metadata={_KEY: head}))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def from_bytes(data: bytes, key: Any = None) -> Digests | None:
    """The digests in a file; None when it is damaged, of another version or (given a key) of other sources."""
    import pyarrow as pa

    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        head = orjson.loads(table.schema.metadata[_KEY])
        if head["version"] != DIGEST_VERSION or (key is not None and head["key"] != key):
            return None
        frames = {name: pl.read_ipc(io.BytesIO(table[name][0].as_py())) for name in table.column_names if name in CLUSTER_TABLES}
        return Digests(frames).check()
    except (pa.ArrowInvalid, pa.ArrowKeyError, KeyError, TypeError, ValueError, OSError, pl.exceptions.PolarsError, SchemaError):
        return None


def digest_file(capture: Path | str) -> Path:
    """Where the digest of a capture is kept: beside it when that is writable, else (and of an address) in the user's cache."""
    if isinstance(capture, Path):
        beside = capture / FILE if capture.is_dir() else capture.with_name(f".{capture.name}.{FILE}")
        if os.access(beside.parent, os.W_OK):
            return beside
        capture = str(capture.absolute())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepscope" / "digests"
    return cache / f"{hashlib.sha256(capture.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.{FILE}"


def keep(capture: Path | str, data: bytes) -> bool:
    """Write the digest of a capture, whole or not at all; False when nowhere is writable."""
    target = digest_file(capture)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    return True


def remove_older(capture: Path) -> bool:
    """Remove digests of other versions, which nothing reads any more; True when there were some."""
    own = digest_file(capture)
    older = [path for path in own.parent.glob(_glob_text(own.name.replace(FILE, "")) + "digest-v*.arrow") if path.name != own.name]
    for path in older:
        path.unlink(missing_ok=True)
    return bool(older)


def _glob_text(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text)


def kept(capture: Path | str, key: Any) -> Digests | None:
    """The digest of a capture when it is fresh."""
    try:
        data = digest_file(capture).read_bytes()
    except OSError:
        return None
    return from_bytes(data, key)


def write_cluster(folder: Path, digests: Digests) -> list[Path]:
    """All ranks as one Parquet file per table; the folder is enough for everything but looking at a rank's own timeline."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, frame in digests.frames.items():
        target = folder / f"{name}.parquet"
        temporary = target.with_suffix(".tmp")
        frame.write_parquet(temporary, compression="zstd", metadata={"stepscope.digest": str(DIGEST_VERSION)})
        temporary.replace(target)
        written.append(target)
    return written


def is_cluster_store(folder: Path) -> bool:
    return (folder / "cluster_calls.parquet").is_file() and (folder / "cluster_ranks.parquet").is_file()


def read_cluster(folder: Path, ranks: Sequence[int] | None = None) -> Digests:
    """What `write_cluster` wrote.

    Raises:
        CaptureError: it is damaged or of another version.
    """
    frames = {}
    for name, table in CLUSTER_TABLES.items():
        path = folder / f"{name}.parquet"
        if not path.is_file():
            continue
        try:
            version = pl.read_parquet_metadata(path).get("stepscope.digest")
            if version not in (None, str(DIGEST_VERSION)):
                raise CaptureError(
                    f"digests of version {version}, this program reads {DIGEST_VERSION}", where=str(path),
                    fix="make them again: stepscope cluster CAPTURES --digests DIR",
                )  # fmt: skip
            frames[name] = table.conform(pl.read_parquet(path))
        except (pl.exceptions.PolarsError, OSError) as problem:
            raise CaptureError(
                "the digests cannot be read", where=str(path), cause=str(problem), fix="make them again"
            ) from problem
    digests = Digests(frames)
    return digests if ranks is None else digests.filter(ranks)

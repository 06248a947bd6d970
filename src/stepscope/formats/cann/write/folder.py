# SPDX-License-Identifier: Apache-2.0
"""Writes a raw `PROF_*` folder: settings, records in slices, dictionaries (docs/formats/cann.md 1, 8).

Records go to their file as they come, so memory does not grow with the session and a killed process loses nothing that
was appended. One lock guards everything: any thread may call, one at a time gets through.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.clock import CounterClock
from stepscope.formats.cann.layouts import Layout
from stepscope.formats.cann.write.hash import HashDictionary
from stepscope.formats.cann.write.settings import Session, end_file, start_files
from stepscope.formats.cann.write.type_names import ACL, ACL_GROUPS, TYPE_NAMES

SLICE_BYTES = 256 << 20
# Kinds that the vendor's collector never lets age: they describe the whole session.
_NEVER_AGING = (
    "additional.context_id_info",
    "compact.expand_stream_spec",
    "additional.graph_id_map",
    "additional.logic_stream_info",
)

Texts = str | Sequence[str] | pl.Series | npt.NDArray[Any]


def rows(layout: Layout, /, **columns: Any) -> npt.NDArray[Any]:
    """Records of a kind from columns; a single value holds for all rows. The magic is set, other bytes are 0."""
    count = max((len(value) for value in columns.values() if np.ndim(value)), default=1)
    records = np.zeros(count, layout.dtype)
    if layout.magic is not None:
        records["magic"] = layout.magic
    for name, value in columns.items():
        records[name] = value
    return records


def reorder(records: npt.NDArray[Any], order: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The records in another order, all their bytes with them (a struct copy would leave out the gaps)."""
    moved: npt.NDArray[Any] = records.view(f"V{records.dtype.itemsize}")[order]
    return moved.view(records.dtype)


class ProfWriter:
    """One raw folder in the making; a context manager that closes it."""

    def __init__(self, parent: Path, session: Session, *, number: int = 1, slice_bytes: int = SLICE_BYTES) -> None:
        self.session = session
        self.path = parent / session.folder_name(number)
        self.written: dict[str, int] = {}  # records per kind
        self._slice_bytes = slice_bytes
        self._files: dict[Path, _SliceFile] = {}
        self._hashes = HashDictionary()
        self._acl: dict[str, int] = {}
        self._lock = threading.RLock()
        self._closed = False
        parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(mode=0o750)
        for device in (None, *session.devices):
            self._begin_part(device)
        lines = (f"{level}_{number}:{name}\n" for level, types in TYPE_NAMES.items() for number, name in types.items())
        self._text("type_info_dic", "".join(lines))

    def __enter__(self) -> ProfWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def add_device(self, device: int) -> None:
        """Create the folder of a device that joins later, unless it exists."""
        with self._lock:
            if device not in self.session.devices:
                self.session = replace(self.session, devices=(*self.session.devices, device))
                self._begin_part(device)

    def clock(self, device: int | None = None) -> CounterClock:
        """The clock of the host's records or of a device's."""
        return self.session.clock(device)

    def append(
        self, layout: Layout, records: npt.NDArray[Any], *, device: int | None = None, aging: bool | None = None, name: str = ""
    ) -> None:
        """Add records of a kind to the host's folder or to a device's; `aging` only matters for the host's.

        `name` is that of the file where it does not follow from the layout.
        """
        if records.dtype != layout.dtype:
            raise TypeError(f"{layout.file} is written from its own layout, not from {records.dtype}")
        if not len(records):
            return
        if name:
            pass
        elif device is None:
            kept = layout.file in _NEVER_AGING if aging is None else not aging
            name = f"{'unaging' if kept else 'aging'}.{layout.file}"
        else:
            name = f"{layout.file}.{device}"
        with self._lock:
            self._flush_texts()  # first: whoever reads a record finds its names
            self._file(device, name).write(np.ascontiguousarray(records).view(np.uint8), layout.size)
            self.written[layout.file] = self.written.get(layout.file, 0) + len(records)

    def append_text(self, name: str, lines: str, *, device: int | None = None) -> None:
        """Add lines to a file of text in the host's folder or a device's."""
        if lines:
            with self._lock:
                self._file(device, name).write_lines(lines.encode("utf-8", "replace"))

    def ids(self, texts: Texts) -> npt.NDArray[np.uint64]:
        """Numbers of texts for a hash field; an array of numbers is passed through."""
        with self._lock:
            if isinstance(texts, str):
                return np.array(self._hashes.number(texts), np.uint64)
            if isinstance(texts, np.ndarray) and texts.dtype.kind in "iu":
                return texts.astype(np.uint64)
            series = pl.Series(texts, dtype=pl.String) if not isinstance(texts, pl.Series) else texts.cast(pl.String)
            distinct = series.fill_null("").cast(pl.Categorical)
            named = distinct.unique()
            numbers = self._hashes.numbers(named.cast(pl.String).to_list())
            place = np.zeros(int(named.to_physical().max() or 0) + 1, np.uint64)
            place[named.to_physical().to_numpy()] = numbers
            return np.asarray(place[distinct.to_physical().to_numpy()], np.uint64)

    def acl_type(self, name: str, group: str = "ACL_NN") -> int:
        """Type number of a call of the acl level, such as `aclnnAdd`; new names enter the type dictionary."""
        with self._lock:
            number = self._acl.get(name)
            if number is None:
                number = self._acl[name] = ACL_GROUPS[group] << 16 | len(self._acl)
                self._text("type_info_dic", f"{ACL}_{number}:{name}\n")
            return number

    def close(self, end_ns: int | None = None) -> None:
        """Close all files and write `end_info`; the end is now unless it is given. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._flush_texts()
            with contextlib.ExitStack() as files:  # all of them, also when the folder is gone
                for file in self._files.values():
                    files.callback(file.close)
            end_ns = time.time_ns() if end_ns is None else end_ns
            for device in (None, *self.session.devices):
                name, data = end_file(self.session, device, end_ns)
                _put(self._part(device) / name, data)

    def _begin_part(self, device: int | None) -> None:
        for folder in (self._part(device), self._part(device) / "data"):
            folder.mkdir(mode=0o750)
        for name, data in start_files(self.session, device).items():
            _put(self._part(device) / name, data)

    def _part(self, device: int | None) -> Path:
        return self.path / ("host" if device is None else f"device_{device}")

    def _file(self, device: int | None, name: str) -> _SliceFile:
        path = self._part(device) / "data" / name
        if path not in self._files:
            self._files[path] = _SliceFile(path, self._slice_bytes)
        return self._files[path]

    def _flush_texts(self) -> None:
        self._text("hash_dic", self._hashes.fresh_lines())

    def _text(self, tag: str, lines: str) -> None:
        self.append_text(f"unaging.additional.{tag}", lines)


class _SliceFile:
    """A file cut into slices of at most `limit` bytes, each of whole records."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._limit = path, limit
        self._number, self._size = 0, 0
        self._open: IO[bytes] | None = None

    def write(self, data: npt.NDArray[np.uint8], record: int) -> None:
        while len(data):
            room = (self._limit - self._size) // record * record
            if room <= 0 and self._size:
                self.close()
                continue
            now, data = data[: max(room, record)], data[max(room, record) :]
            self._put(now.data)

    def write_lines(self, lines: bytes) -> None:
        """As `write`, for text: other parsers lose a line that is cut."""
        while lines:
            room = self._limit - self._size
            end = len(lines) if len(lines) <= room else lines.rfind(b"\n", 0, room) + 1
            if not end and self._size:
                self.close()
                continue
            end = end or lines.find(b"\n") + 1 or len(lines)
            self._put(memoryview(lines[:end]))
            lines = lines[end:]

    def _put(self, data: memoryview) -> None:
        if self._open is None:
            self._open = _create(self._slice)
        _write(self._open, data)
        self._size += len(data)

    def close(self) -> None:
        """End the slice; what comes later begins the next one."""
        if self._open is None:
            return
        self._open.close()
        _write_done_file(self._slice, f"filesize:{self._size}\nstarttime:0\nendtime  :0\n")
        self._open, self._number, self._size = None, self._number + 1, 0

    @property
    def _slice(self) -> Path:
        return self._path.with_name(f"{self._path.name}.slice_{self._number}")


def _put(path: Path, data: bytes) -> None:
    with _create(path) as file:
        _write(file, memoryview(data))
    _write_done_file(path, f"filesize:{len(data)}\n")


def _write_done_file(path: Path, text: str) -> None:
    with _create(path.with_name(f"{path.name}.done")) as file:
        _write(file, memoryview(text.encode()))


def _create(path: Path) -> IO[bytes]:
    """Mode 0640, and no buffer: a forked child must not write it out a second time, a killed process loses nothing."""
    return open(path, "wb", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o640))


def _write(file: IO[bytes], data: memoryview) -> None:
    while len(data):
        data = data[file.write(data) :]

# SPDX-License-Identifier: Apache-2.0
"""Small exports of Nsight Systems for tests: rows as dictionaries, texts become string ids where they are marked."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
EPOCH_NS, CLOCK_NS = 1_700_000_000_000_000_000, 5_000


class Text(str):
    """A text that stands in StringIds; the row holds its id."""

    __slots__ = ()


def owner(pid: int, tid: int = 0) -> int:
    """A globalPid, or with a thread a globalTid: machine, process and thread in one number."""
    return (1 << 48) | (pid << 24) | tid


def make_export(path: Path, tables: Rows, *, clock: bool = True) -> Path:
    ids: dict[str, int] = {}

    def stored(cell: Any) -> Any:
        return ids.setdefault(str(cell), len(ids)) if isinstance(cell, Text) else cell

    filled: dict[str, Sequence[Mapping[str, Any]]] = dict(tables)
    if clock:
        filled["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": EPOCH_NS, "systemClockNs": CLOCK_NS}]
    connection = sqlite3.connect(path)
    with connection:
        for name, rows in filled.items():
            columns = list(dict.fromkeys(key for row in rows for key in row)) or ["start", "end"]
            connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            cells = [[stored(row.get(key)) for key in columns] for row in rows]
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", cells)
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, text) for text, number in ids.items()])
    connection.close()
    return path


def kernel(start: int, end: int, name: str, *, pid: int = 1, device: int = 0, correlation: int = 0, **more: Any) -> dict[str, Any]:
    axes = {f"{what}{axis}": 1 for what in ("grid", "block") for axis in "XYZ"}
    shape = {"registersPerThread": 8, "staticSharedMemory": 0, "dynamicSharedMemory": 0}
    place = {"deviceId": device, "contextId": pid, "streamId": 7, "correlationId": correlation, "globalPid": owner(pid)}
    return {"start": start, "end": end, "demangledName": Text(name), "shortName": Text(name)} | axes | shape | place | more


def call(start: int, end: int, name: str, *, pid: int = 1, correlation: int = 0, kind: int = 0) -> dict[str, Any]:
    return {
        "start": start, "end": end, "eventClass": kind, "globalTid": owner(pid, pid), "correlationId": correlation,
        "nameId": Text(name), "returnValue": 0,
    }  # fmt: skip


def nvtx(start: int, end: int | None, text: str, *, pid: int = 1, kind: int = 59, domain: int = 0, **more: Any) -> dict[str, Any]:
    event = {"start": start, "end": end, "eventType": kind, "text": text, "textId": None, "domainId": domain}
    return event | {"globalTid": owner(pid, pid), "rangeId": None, "category": None, "endGlobalTid": None} | more

# SPDX-License-Identifier: Apache-2.0
"""A raw folder with one device and whatever data files a test gives it; its clocks are easy to reckon with.

All clocks meet at `ZERO`, when the collection began: microsecond 0 of the sampler, tick 1000 of the device's counter
(20 ns each), tick 5000 of the host's (10 ns each), 400 000 ns on the device's and 1 000 000 ns on the host's
monotonic clock.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope.formats.cann.folder import open_prof
from stepscope.formats.cann.layouts import Layout
from stepscope.formats.cann.sampled.tables import read_sampled
from stepscope.tables import Tables

ZERO = 2_000_000_000
DEVICE_TICK_0, HOST_TICK_0, DEVICE_NS_0, HOST_NS_0 = 1000, 5000, 400_000, 1_000_000
DEVICE_NS, HOST_NS = 20, 10  # length of a tick

_START = {"clockMonotonicRaw": str(HOST_NS_0), "collectionTimeBegin": str(ZERO // 1000)}
_INFO: dict[str, Any] = {
    "platform_version": "5",
    "version": "1.0",
    "pid": "7",
    "CPU": [{"Frequency": "100.0"}],
    "DeviceInfo": [{"hwts_frequency": "50.0"}],
    "cpuNums": 4,
    "sysClockFreq": 100,
    "memoryTotal": 800_000,
    "netCard": [{"netCardName": "eth0", "speed": 8}, {"netCardName": "lo", "speed": -1}],
}


def records(layout: Layout, *rows: dict[str, Any]) -> bytes:
    """Records of a layout; fields that are not given are zero, the magic is right."""
    array = np.zeros(len(rows), layout.dtype)
    for at, row in enumerate(rows):
        if layout.magic is not None:
            array["magic"][at] = layout.magic
        for name, value in row.items():
            array[name][at] = value
    return array.tobytes()


def write(root: Path, device: dict[str, bytes], host: dict[str, bytes], settings: dict[str, Any], info: dict[str, Any]) -> Path:
    prof = root / "PROF_000001_20260101000000000_AAAAAAAAAAAAAAAA"
    log = f"[Host]\nclock_monotonic_raw: {HOST_NS_0}\ncntvct: {HOST_TICK_0}\ncntvct_diff: 0\n"
    for name, tail, files in (("host", "", host), ("device_0", ".0", device)):
        folder = prof / name
        (folder / "data").mkdir(parents=True)
        (folder / f"info.json{tail}").write_text(json.dumps({**_INFO, **info}))
        (folder / "sample.json").write_text(json.dumps(settings))
        (folder / f"start_info{tail}").write_text(json.dumps(_START))
        (folder / f"host_start.log{tail}").write_text(log)
        for kind, data in files.items():
            (folder / "data" / f"{kind}{tail}.slice_0").write_bytes(data)
    (prof / "device_0" / "dev_start.log.0").write_text(f"clock_monotonic_raw: {DEVICE_NS_0}\ncntvct: {DEVICE_TICK_0}\n")
    return prof


def sampled(
    root: Path,
    device: dict[str, bytes] | None = None,
    host: dict[str, bytes] | None = None,
    *,
    settings: dict[str, Any] | None = None,
    **info: Any,
) -> Tables:
    return read_sampled(open_prof(write(root, device or {}, host or {}, settings or {}, info))).check()


def points(tables: Tables, source: str) -> dict[tuple[str, str, int | None], list[tuple[int, float]]]:
    """(time since ZERO, value) by (name, series, instance) of one source."""
    found: dict[tuple[str, str, int | None], list[tuple[int, float]]] = {}
    rows = tables.counters.filter(pl.col("source") == source)
    for name, series, instance, time, value in rows.select("name", "series", "instance", "time_ns", "value").rows():
        found.setdefault((name, series, instance), []).append((time - ZERO, value))
    return found


def losses(tables: Tables) -> dict[str, int]:
    """Counts in `quality` by issue."""
    return dict(tables.quality.group_by("issue").agg(pl.col("count").sum()).rows())

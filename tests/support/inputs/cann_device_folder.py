# SPDX-License-Identifier: Apache-2.0
"""A raw device folder from hand-made records: 50 ticks are a microsecond, tick 1000 is 2 000 000 000 ns since 1970."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.cann.folder import Part, open_prof
from stepscope.formats.cann.layouts import LPM_INFO, PMU, STARS, STARS_MAGIC, TS_TRACK, Layout

ZERO_TICKS, ZERO_NS = 1000, 2_000_000_000


def ns(ticks: int) -> int:
    return ZERO_NS + (ticks - ZERO_TICKS) * 20


def filled(layout: Layout, records: Iterable[dict[str, Any]]) -> npt.NDArray[Any]:
    """Records with the given fields; all else is 0."""
    given = list(records)
    rows = np.zeros(len(given), layout.dtype)
    for number, record in enumerate(given):
        for name, value in record.items():
            rows[name][number] = value
    return rows


def joined(*tables: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Records one after the other; as bytes, since numpy would move the fields of a struct."""
    return np.concatenate([rows.view(np.uint8) for rows in tables]).view(tables[0].dtype)


def stars(*records: tuple[int, int, int, int], sqe: int = 0, first: int = 0) -> npt.NDArray[Any]:
    """(function, stream, task, counter) with the running counter as it should be."""
    return filled(
        STARS,
        (
            {"head": function | (first + number) % 16 << 6 | sqe << 10, "magic": STARS_MAGIC, "stream": s, "task": t, "counter": c}
            for number, (function, s, t, c) in enumerate(records)
        ),
    )


def pmu(*records: dict[str, Any]) -> npt.NDArray[Any]:
    """PMU records with `function` instead of a head."""
    heads = [{"head": record.get("function", 40) | number % 16 << 6, "magic": STARS_MAGIC} for number, record in enumerate(records)]
    return filled(PMU, ({**record, **head} for record, head in zip(_without_function(records), heads, strict=True)))


def _without_function(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "function"} for record in records]


def flips(*records: tuple[int, int, int, int]) -> npt.NDArray[Any]:
    """(stream, counter, flip, task)."""
    return filled(
        TS_TRACK, ({"mode": 1, "kind": 14, "stream": s, "counter": c, "flip": f, "flip_task": t} for s, c, f, t in records)
    )


def lpm(kind: int, *points: tuple[int, int]) -> npt.NDArray[Any]:
    rows = filled(LPM_INFO, [{"count": len(points), "kind": kind}])
    for place, (counter, value) in enumerate(points):
        rows["points"]["counter"][0, place], rows["points"]["value"][0, place] = counter, value
    return rows


def device_part(
    folder: Path, *tables: tuple[Layout, npt.NDArray[Any]], sample: dict[str, Any] | None = None, chip: int = 5, end: str = ""
) -> Part:
    """Write `PROF_1/device_0` with the records and open it."""
    device = folder / "PROF_1" / "device_0"
    (device / "data").mkdir(parents=True)
    info = {
        "platform_version": str(chip),
        "CPU": [{"Frequency": "100.000000"}],
        "DeviceInfo": [
            {"hwts_frequency": "50.000000", "aic_frequency": "1000", "aiv_frequency": "1000", "ai_core_num": 20, "aiv_num": 40}
        ],
    }
    (device / "info.json.0").write_text(json.dumps(info))
    (device / "sample.json").write_text(json.dumps(sample or {}))
    (device / "start_info.0").write_text(json.dumps({"clockMonotonicRaw": "500000", "collectionTimeBegin": "1999500"}))
    if end:
        (device / "end_info.0").write_text(json.dumps({"collectionTimeEnd": end}))
    (device / "host_start.log.0").write_text("[Device0]\nclock_monotonic_raw: 1000000\ncntvct: 77\ncntvct_diff: 0\n")
    (device / "dev_start.log.0").write_text(f"clock_monotonic_raw: 5\ncntvct: {ZERO_TICKS}\n")
    for layout, rows in tables:
        (device / "data" / f"{layout.file}.0.slice_0").write_bytes(rows.tobytes())
    return open_prof(folder / "PROF_1").devices[0]

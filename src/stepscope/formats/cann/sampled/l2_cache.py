# SPDX-License-Identifier: Apache-2.0
"""Rates of the L2 cache and of address translation, per task (docs/formats/cann.md 5.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.sampled.series import Column, SampledRows, select_records
from stepscope.tables import issues, lost

L2, TLB = 1, 2  # what a record of socpmu.data holds; 4 is page faults


@dataclass(frozen=True)
class Events:
    """Which events of the eight make a rate; `minus_hits` are subtracted from the hits."""

    requests: tuple[int, ...]
    hits: tuple[int, ...]
    others: tuple[int, ...]
    minus_hits: tuple[int, ...] = ()


_OLD = Events((0x59,), (0x5B,), (0x5C,))
_MIDDLE = Events((0x78, 0x79), (0x6A,), (0x71,))
_STARS = Events((0xFB, 0xFC), (0x90, 0x91), (0x9C,))
_NEXT = Events((0x00,), (0x00,), (0x74, 0x75), minus_hits=(0x81, 0x82, 0x83, 0x74, 0x75))
L2_EVENTS = {1: _OLD, 2: _MIDDLE, 3: _MIDDLE, 4: _MIDDLE, 5: _STARS, 7: _STARS, 8: _STARS, 11: _STARS, 15: _NEXT, 16: _NEXT}
TLB_EVENTS = Events((0x8A,), (0x8C, 0x8D), (0x02,))
_HITS_SHOWN = (1, 2, 3, 4)  # on later chips hits cannot be determined; the vendor's tool shows N/A
SIMULATED = "simulatedDevice"  # a switch of ours: there hits are counted as the events say


def l2_cache(part: Part, rows: Column) -> SampledRows:
    return _l2_rates(part, rows, "l2_cache.data")


def soc_pmu(part: Part, rows: Column) -> SampledRows:
    kinds = rows["data_type"]
    cache = _l2_rates(part, select_records(rows, kinds == L2), "socpmu.data")
    translation = _rates(part, select_records(rows, kinds == TLB), "tlb", TLB_EVENTS, _smmu_events(part), "socpmu.data")
    unread = lost(issues.UNSUPPORTED_KIND, "socpmu.data", int((~np.isin(kinds, (L2, TLB))).sum()), "neither cache nor translation")
    found = [frame for part_found in (cache, translation) for frame in part_found.rows.get("cache_rates", ())]
    return SampledRows({"cache_rates": found}, (*cache.lost, *translation.lost, unread))


def _l2_rates(part: Part, rows: Column, file: str) -> SampledRows:
    events = L2_EVENTS.get(part.chip if part.chip is not None else -1)
    if events is None:
        return SampledRows(lost=(lost(issues.NOT_UNDERSTOOD, file, len(rows), f"events of chip {part.chip} are not known"),))
    collected = _codes(part.setting("l2CacheTaskProfilingEvents"))
    return _rates(part, rows, "l2", events, collected, file, hits=part.chip in _HITS_SHOWN or part.setting(SIMULATED) == "on")


def _rates(
    part: Part, rows: Column, kind: str, events: Events, collected: list[int], file: str, *, hits: bool = True
) -> SampledRows:
    needed = {*events.requests, *events.hits, *events.others, *events.minus_hits}
    absent = sorted(needed - set(collected[:8]))
    if absent:
        detail = "events not collected: " + ", ".join(f"{event:#x}" for event in absent)
        return SampledRows(lost=(lost(issues.NOT_UNDERSTOOD, file, len(rows), detail),))
    counts = rows["events"].astype(np.float64)

    def total(codes: tuple[int, ...]) -> Column:
        return np.asarray(counts[:, [collected.index(code) for code in codes]].sum(axis=1))

    requests = total(events.requests)

    def share(amount: Column) -> Column:
        return np.divide(amount, requests, out=np.zeros(len(rows)), where=requests != 0)

    rates = pl.DataFrame({"stream": rows["stream"].astype(np.int64), "task_id": rows["task"].astype(np.int64)}).with_columns(
        pl.lit(kind).alias("kind"),
        pl.lit(part.device).alias("device"),
        pl.Series("hit_rate", share(total(events.hits) - total(events.minus_hits))) if hits else pl.lit(None).alias("hit_rate"),
        pl.Series("other_rate", share(total(events.others))),
    )
    return SampledRows({"cache_rates": [rates]})


def _codes(text: str) -> list[int]:
    """`0xF6,0xFB` as numbers; what is not a number becomes -1."""
    return [_code(piece.strip()) for piece in text.split(",")]


def _code(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return -1


def _smmu_events(part: Part) -> list[int]:
    """The list behind `SMMU:` in `npuEvents`, such as `HA:0x00;SMMU:0x02,0x8A`."""
    for group in part.setting("npuEvents").split(";"):
        unit, _, codes = group.partition(":")
        if unit.strip().upper() == "SMMU":
            return _codes(codes)
    return []

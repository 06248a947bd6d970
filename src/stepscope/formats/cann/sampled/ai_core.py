# SPDX-License-Identifier: Apache-2.0
"""How busy each core was, where cores were sampled and not counted by task (docs/formats/cann.md 6.13)."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.formats.cann.chips import COUNTER_FILES, chip_of
from stepscope.formats.cann.device.frequency import rated_mhz
from stepscope.formats.cann.device.pmu_metrics import Settings, metric_set
from stepscope.formats.cann.device.pmu_sets import Half
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import AICORE_SAMPLE, AICORE_SAMPLE_NEXT, VECTOR_SAMPLE, Layout
from stepscope.formats.cann.records import read_records
from stepscope.formats.cann.sampled.series import SampledRows, counters, series

SOURCE = "AI Core Utilization"
# Layouts by the reader of counters that the chip has otherwise; A2's sampled records are not described anywhere.
_LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "aicore": (AICORE_SAMPLE, VECTOR_SAMPLE), "event_counter": (AICORE_SAMPLE,), "ffts_128": (AICORE_SAMPLE_NEXT,),
}  # fmt: skip
_SHOWN = ("_ratio", "_rate", "_bw", "_bw_cube", "_bw_vector", "_bw_scalar", "_bw_mte")


def ai_core(part: Part) -> SampledRows:
    """Shares and bandwidths of each core, sample by sample; empty where cores were counted by task."""
    chip = chip_of(part.chip)
    if not part.samples_cores or chip is None or chip.counters not in COUNTER_FILES:
        return SampledRows()
    settings, mhz = Settings.of(part), rated_mhz(part)
    frames: list[pl.DataFrame] = []
    losses: list[pl.DataFrame] = []
    for layout in _LAYOUTS.get(chip.counters, ()):
        records = read_records(part, layout)
        losses += records.lost
        rows = records.rows
        vector = layout is VECTOR_SAMPLE
        events = settings.aiv_events if vector else settings.aic_events
        chosen = metric_set(settings.aiv_metrics if vector else settings.aic_metrics, events, settings.formulas)
        cycles = rows["cycles"].astype(np.float64)
        counts = {
            event: rows["counters"][:, at].astype(np.float64) for at, event in enumerate(events) if at < rows["counters"].shape[1]
        }
        half = Half(cycles, counts, cycles / mhz if mhz else np.zeros(len(cycles)), mhz * 1e6)
        samples = pl.DataFrame({"time_ns": part.clock.ns(np.ascontiguousarray(rows["counter"])), "core": rows["core_id"]})
        word = "AIV core {}" if vector else "core {}"
        for name, formula in chosen.items():
            if name.endswith(_SHOWN):
                frames.append(
                    series(samples.with_columns(value=formula(half)), part, SOURCE, name, pl.format(word, "core"), "value")
                )
    return counters(frames, *losses) if frames or losses else SampledRows()

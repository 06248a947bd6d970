# SPDX-License-Identifier: Apache-2.0
"""What a device did: its tasks with their times, counters, frequency and the scheduler's own records."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stepscope.formats.cann.device import pmu_metrics
from stepscope.formats.cann.device.frequency import Frequency, read_frequency
from stepscope.formats.cann.device.pmu import Counters, read_pmu
from stepscope.formats.cann.device.stars import read_tasks
from stepscope.formats.cann.device.ts_track import Track, read_track
from stepscope.formats.cann.folder import Part
from stepscope.tables import ALL_TABLES


@dataclass(frozen=True)
class DeviceSide:
    """The records of one `device_<id>` folder. Row numbers below are those of the frames here.

    tasks: one row per run of a task or of a sub task, in the order of start:
        stream, task_id, batch_id Int64; context_id Int64 (null: the whole task); start_ns, end_ns Int64;
        start_ticks, end_ticks UInt64; device_type TEXT (sqe type, or FFTS+ type of a sub task); pmu Int64 (row of `pmu`).
    pmu: one row per task that has counters, in the order of tasks: task Int64 (row of `tasks`), stream, task_id, batch_id,
        context_id, core Enum (AIC, AIV, MIX_AIC, MIX_AIV), start_ticks, end_ticks, cycles UInt64, overflow Boolean.
    points: core frequency and voltages: kind String (frequency in MHz, aic_voltage, bus_voltage in mV), time_ns, value Int64.
    marks: see `ts_track.Track`.
    quality: what was lost, as table `quality`.
    """

    device: int
    tasks: pl.DataFrame
    counters: Counters
    frequency: Frequency
    track: Track
    settings: pmu_metrics.Settings
    quality: pl.DataFrame

    @property
    def pmu(self) -> pl.DataFrame:
        return self.counters.rows

    @property
    def points(self) -> pl.DataFrame:
        return self.frequency.points

    @property
    def marks(self) -> pl.DataFrame:
        return self.track.marks

    def metrics(self, kernels: pl.DataFrame) -> pl.DataFrame:
        """Metrics of kernels, row by row: Float64 columns named as in `kernel_metrics`, times in ns.

        `kernels` has columns pmu (row of `pmu`, never null), block_num, mix_block_num (null is 0), duration_ns.
        """
        return pmu_metrics.kernel_metrics(self.counters, self.settings, self.frequency, kernels)


def read_device(part: Part, wide: bool) -> DeviceSide:
    """Read a device folder; `wide` says how stream and task numbers are coded (record expand_stream_spec of the host)."""
    track, track_lost = read_track(part, wide)
    tasks, tasks_lost = read_tasks(part, wide, track.flips)
    counters, pmu_lost = read_pmu(part, wide, track.flips, tasks)
    frequency, frequency_lost = read_frequency(part)
    row = pl.Series("pmu", [None] * tasks.height, pl.Int64).scatter(
        counters.rows["task"], pl.Series(range(counters.rows.height), dtype=pl.Int64)
    )
    losses = [*track_lost, *tasks_lost, *pmu_lost, *frequency_lost]
    return DeviceSide(
        device=part.device if part.device is not None else 0,
        tasks=tasks.with_columns(row.alias("pmu")),
        counters=counters,
        frequency=frequency,
        track=track,
        settings=pmu_metrics.Settings.of(part),
        quality=pl.concat(losses) if losses else ALL_TABLES["quality"].empty(),
    )

# SPDX-License-Identifier: Apache-2.0
"""What a device did: its tasks with their times, counters, frequency and the scheduler's own records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import polars as pl

from stepscope.formats.cann.chips import UNSAID, Chip, chip_of
from stepscope.formats.cann.device import aicore, hwts, pmu_metrics, stars_32, task_parts, timeline
from stepscope.formats.cann.device.frequency import Frequency, read_frequency
from stepscope.formats.cann.device.pmu import Counters, read_pmu
from stepscope.formats.cann.device.stars import read_tasks
from stepscope.formats.cann.device.ts_track import Track, empty_track, read_track
from stepscope.formats.cann.folder import Part
from stepscope.tables import ALL_TABLES


@dataclass(frozen=True)
class DeviceSide:
    """The records of one `device_<id>` folder. Row numbers below are those of the frames here.

    tasks: one row per run of a task or of a sub task, in the order of start:
        stream, task_id, batch_id Int64; context_id Int64 (null: the whole task); start_ns, end_ns Int64;
        start_ticks, end_ticks UInt64; device_type TEXT (sqe type, or FFTS+ type of a sub task); pmu Int64 (row of `pmu`);
        of some chips the columns of table `task_states`.
    pmu: one row per task that has counters, in the order of tasks: task Int64 (row of `tasks`), stream, task_id, batch_id,
        context_id, core Enum (AIC, AIV, MIX_AIC, MIX_AIV), start_ticks, end_ticks, cycles UInt64, overflow Boolean,
        block_num Int64 (where the record has it).
    points: core frequency and voltages: kind String (frequency in MHz, aic_voltage, bus_voltage in mV), time_ns, value Int64.
    marks: see `ts_track.Track`.
    parts: frame `task_parts.PARTS`; empty on chips that report no parts of tasks by themselves.
    quality: what was lost, as table `quality`.
    """

    device: int
    tasks: pl.DataFrame
    counters: Counters
    frequency: Frequency
    track: Track
    settings: pmu_metrics.Settings
    quality: pl.DataFrame
    parts: pl.DataFrame
    in_order: bool = False  # rounds of task numbers are not told apart: runs belong to host tasks in their order

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


TaskReader = Callable[[Part, Chip, Track, pl.DataFrame | None], tuple[pl.DataFrame, list[pl.DataFrame]]]
CounterReader = Callable[[Part, Chip, pl.DataFrame, pl.DataFrame | None], tuple[Counters, list[pl.DataFrame]]]

# Readers of chips whose records are not those of A2, by the names in the table of chips.
TASK_READERS: dict[str, TaskReader] = {"hwts": hwts.read_tasks, "timeline": timeline.read_tasks, "stars_32": stars_32.read_tasks}
COUNTER_READERS: dict[str, CounterReader] = {
    "aicore": aicore.read_aicore, "event_counter": aicore.read_event_counters, "ffts_128": stars_32.read_pmu,
}  # fmt: skip
PartReader = Callable[[Part, Chip, pl.DataFrame | None], tuple[pl.DataFrame, list[pl.DataFrame]]]
PART_READERS: dict[str, PartReader] = {"hwts": task_parts.read_hwts, "stars_32": task_parts.read_stars_32}


def asks_host(part: Part) -> bool:
    """Whether `read_device` uses what the host queued on this device."""
    chip = chip_of(part.chip) or UNSAID
    return chip.tasks in TASK_READERS or bool(chip.parts)


def read_device(part: Part, wide: bool, queued: pl.DataFrame | None = None) -> DeviceSide:
    """Read a device folder.

    Args:
        part: the folder.
        wide: how stream and task numbers are coded on A2 (record expand_stream_spec of the host).
        queued: tasks that the host queued on the device, in order: stream, task_id, batch_id, is_operator, core. Some chips
            leave to the host what a task is; without the host all of its tasks count.
    """
    chip = chip_of(part.chip) or UNSAID
    # The scheduler of the 310 has records of its own in this file.
    track, track_lost = (empty_track(), []) if chip.tasks == "timeline" else read_track(part, wide, chip)
    if chip.tasks in TASK_READERS:
        tasks, tasks_lost = TASK_READERS[chip.tasks](part, chip, track, queued)
        of_tasks = replace(part, groups={}) if part.samples_cores else part  # sampled ones are none of a task
        counters, pmu_lost = COUNTER_READERS[chip.counters](of_tasks, chip, tasks, queued)
    else:
        tasks, tasks_lost = read_tasks(part, wide, track.flips)
        counters, pmu_lost = read_pmu(part, wide, track.flips, tasks)
    parts, parts_lost = PART_READERS[chip.parts](part, chip, queued) if chip.parts else (pl.DataFrame(schema=task_parts.PARTS), [])
    frequency, frequency_lost = read_frequency(part)
    row = pl.Series("pmu", [None] * tasks.height, pl.Int64).scatter(
        counters.rows["task"], pl.Series(range(counters.rows.height), dtype=pl.Int64)
    )
    losses = [*track_lost, *tasks_lost, *pmu_lost, *parts_lost, *frequency_lost]
    return DeviceSide(
        device=part.device if part.device is not None else 0,
        tasks=tasks.with_columns(row.alias("pmu")),
        counters=counters,
        frequency=frequency,
        track=track,
        settings=pmu_metrics.Settings.of(part),
        quality=pl.concat(losses) if losses else ALL_TABLES["quality"].empty(),
        parts=parts,
        in_order=not chip.unique_ids and (not chip.has_batches or part.has_old_driver),
    )

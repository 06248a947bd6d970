# SPDX-License-Identifier: Apache-2.0
"""Sampled data of a raw folder as tables: memories, caches, links, network ports, AI CPU, the host's usage.

Adding a kind of file is one layout and one entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from stepscope.formats.cann import layouts
from stepscope.formats.cann.chips import chip_of
from stepscope.formats.cann.folder import Part, Prof
from stepscope.formats.cann.layouts import Layout
from stepscope.formats.cann.records import read_records, text_lines
from stepscope.formats.cann.sampled import ai_core, aicpu, hbm_llc, host_usage, l2_cache, links, npu_memory, soc_profile
from stepscope.formats.cann.sampled.series import Column, SampledRows, start_ns
from stepscope.tables import ALL_TABLES, Tables, issues, lost

_TIMES = {"counters": "time_ns", "aicpu_tasks": "time_ns"}


@dataclass(frozen=True)
class BinaryKind:
    """Records of one file; the last layout is that of folders of version 2.0."""

    layouts: tuple[Layout, ...]
    read: Callable[[Part, Column], SampledRows]
    unique_ids: Layout | None = None  # layout of chips whose task numbers are unique on the device

    @property
    def file(self) -> str:
        return self.layouts[0].file

    def of(self, part: Part) -> Layout:
        chip = chip_of(part.chip)
        if self.unique_ids is not None and chip is not None and chip.unique_ids:
            return self.unique_ids
        return self.layouts[-1 if str(part.info.get("version")) == "2.0" else 0]


@dataclass(frozen=True)
class TextKind:
    """Lines of one file."""

    file: str
    read: Callable[[Part, Sequence[str]], SampledRows]


DEVICE_RECORDS = (
    BinaryKind((layouts.HBM, layouts.HBM_2), hbm_llc.hbm),
    BinaryKind((layouts.LLC, layouts.LLC_2), hbm_llc.llc),
    BinaryKind((layouts.DDR,), hbm_llc.ddr),
    BinaryKind((layouts.QOS,), hbm_llc.qos),
    BinaryKind((layouts.NPU_MEM, layouts.NPU_MEM_2), npu_memory.npu_mem),
    BinaryKind((layouts.NPU_MEM_APP, layouts.NPU_MEM_APP_2), npu_memory.npu_mem),
    BinaryKind((layouts.NPU_MODULE_MEM,), npu_memory.npu_module_mem),
    BinaryKind((layouts.L2_CACHE,), l2_cache.l2_cache),
    BinaryKind((layouts.SOC_PMU,), l2_cache.soc_pmu, unique_ids=layouts.SOC_PMU_NEXT),
    BinaryKind((layouts.STARS_SOC_PROFILE,), soc_profile.soc_profile),
    BinaryKind((layouts.PCIE,), links.pcie),
    BinaryKind((layouts.AICPU_OLD,), aicpu.aicpu_old),
)
DEVICE_TEXTS = (
    TextKind("hccs.data", links.hccs),
    TextKind("nic.data", links.nic),
    TextKind("roce.data", links.roce),
    TextKind("netdev_stats.data", links.netdev_stats),
)
HOST_TEXTS = (
    TextKind("host_cpu.data", host_usage.host_cpu),
    TextKind("host_mem.data", host_usage.host_mem),
    TextKind("host_disk.data", host_usage.host_disk),
    TextKind("host_network.data", host_usage.host_network),
)
# Names for `records.unknown_files`: what is read here.
DEVICE_FILES = (layouts.AICPU.file, *(kind.file for kind in (*DEVICE_RECORDS, *DEVICE_TEXTS)))
HOST_FILES = tuple(kind.file for kind in HOST_TEXTS)


def read_sampled(prof: Prof, *, wide: bool | None = None) -> Tables:
    """Tables `counters`, `cache_rates`, `link_summary`, `aicpu_tasks` and `quality`.

    Tasks carry no names yet; `with_op_names` gives them theirs. `wide` says how stream and task numbers are coded
    (docs/formats/cann.md 4.3); None looks it up.
    """
    wide = _wide(prof) if wide is None else wide
    rows: dict[str, list[pl.DataFrame]] = {}
    losses: list[pl.DataFrame] = []
    for part in prof.parts:
        begin = start_ns(part)
        for found in _read_part(part, wide):
            losses += found.lost
            for table, frames in found.rows.items():
                for frame in frames:
                    kept, early = _from_start(frame, _TIMES.get(table), begin)
                    rows.setdefault(table, []).append(kept)
                    losses.append(lost(issues.BEFORE_RECORDING, f"{part.path.name}/{table}", early, "samples: left out"))
    tables = {name: ALL_TABLES[name].conform(pl.concat(frames, how="diagonal_relaxed")) for name, frames in rows.items()}
    return Tables(tables).with_quality(*(row for row in losses if row.height))


def _read_part(part: Part, wide: bool) -> Iterator[SampledRows]:
    if part.device is None:
        texts: tuple[TextKind, ...] = HOST_TEXTS
    else:
        texts = DEVICE_TEXTS
        ai_cpu = BinaryKind((layouts.AICPU,), partial(aicpu.aicpu, wide=wide))
        for kind in (*DEVICE_RECORDS, ai_cpu):
            records = read_records(part, kind.of(part))
            yield SampledRows(lost=records.lost)
            if len(records):
                yield kind.read(part, records.rows)
        yield ai_core.ai_core(part)
    for text in texts:
        lines, bad = text_lines(part.slices(text.file))
        yield SampledRows(lost=tuple(bad))
        if lines:
            yield text.read(part, lines)


def _from_start(frame: pl.DataFrame, time: str | None, begin: int) -> tuple[pl.DataFrame, int]:
    """As in the vendor's tool, the rows that lie in the recording."""
    if time is None or not frame.height:
        return frame, 0
    kept = frame.filter(pl.col(time) >= begin)
    return kept, frame.height - kept.height


def _wide(prof: Prof) -> bool:
    return bool((read_records(prof.host, layouts.EXPAND_STREAM_SPEC).rows["wide"] == 1).any())


def with_op_names(tables: Tables, kernels: pl.DataFrame) -> Tables:
    """The tables with names of operators from `kernels`: rates of caches and AI CPU tasks.

    A rate names stream and task but not which of several runs, so the last operator with that number gives the
    name. An AI CPU task belongs to the run in which it ended.
    """
    operators = kernels.filter(pl.col("kind") == "compute").select(
        "device", "stream", "task_id", "start_ns", "end_ns", pl.col("name").alias("operator")
    )
    key = ["device", "stream", "task_id"]
    last = operators.sort("start_ns", maintain_order=True).unique(key, keep="last", maintain_order=True)
    rates = tables.cache_rates.join(last.select(*key, "operator"), on=key, how="left", maintain_order="left")
    tasks = tables.aicpu_tasks.with_row_index("row").with_columns(
        (pl.col("time_ns") + (pl.col("task_us") * 1000).round().cast(pl.Int64)).alias("finish_ns")
    )
    ran = tasks.join(operators, on=key).filter(pl.col("finish_ns").is_between("start_ns", "end_ns"))
    named = tasks.join(ran.unique("row", keep="first").select("row", "operator"), on="row", how="left", maintain_order="left")
    return tables.replace(
        cache_rates=ALL_TABLES["cache_rates"].conform(rates.with_columns(pl.coalesce("operator", "op_name").alias("op_name"))),
        aicpu_tasks=ALL_TABLES["aicpu_tasks"].conform(named.with_columns(pl.coalesce("operator", "node").alias("node"))),
    )

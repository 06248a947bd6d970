# SPDX-License-Identifier: Apache-2.0
"""Which layer, device and thread a pid and tid of a timeline stand for (docs/formats/outputs.md 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stepscope.formats.ascend.trace.events import arg
from stepscope.formats.ascend.trace.layers import CANN, COMMUNICATION, DEVICES, MINDSPORE_LAYERS, OS_PIDS, PYTHON, SORTS

ARGS: dict[str, pl.DataType] = {"name": pl.String(), "labels": pl.String(), "sort_index": pl.Int64()}

_ON_HOST = (PYTHON.name, CANN.name, *(layer.name for layer in MINDSPORE_LAYERS))


@dataclass(frozen=True)
class Lanes:
    """Processes (pid, layer, device, os_pid) and threads (pid, tid, lane) of a timeline."""

    processes: pl.DataFrame
    threads: pl.DataFrame
    generation: str

    def device_ids(self) -> tuple[int, ...]:
        return tuple(sorted(self.processes["device"].drop_nulls().unique().to_list()))

    def os_pids(self) -> tuple[int, ...]:
        return tuple(sorted(self.processes["os_pid"].drop_nulls().unique().to_list()))

    def place(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add device and os_pid to rows that have a timeline pid."""
        known = self.processes.select("pid", "device", "os_pid")
        return rows.join(known, on="pid", how="left", maintain_order="left")


def metadata(events: pl.LazyFrame) -> pl.LazyFrame:
    """What a metadata event says, one row each."""
    return events.select("pid", "tid", "name", arg("name").alias("value"), arg("labels"), arg("sort_index"))


def layer_names(rows: pl.DataFrame) -> dict[int, str]:
    """Layer by pid, as far as these metadata rows tell."""
    named = rows.filter((pl.col("name") == "process_name") & pl.col("value").is_not_null() & pl.col("pid").is_not_null())
    return dict(zip(named["pid"].to_list(), named["value"].to_list(), strict=True))


def lanes(rows: pl.DataFrame) -> Lanes:
    """Resolve all metadata of a timeline."""
    of_process = rows.filter(pl.col("name").str.starts_with("process_")).group_by("pid", maintain_order=True)
    processes = of_process.agg(
        pl.col("value").drop_nulls().first().alias("layer"),
        pl.col("args.labels").drop_nulls().first().alias("label"),
        pl.col("args.sort_index").drop_nulls().first().alias("sort_index"),
    )
    threads = (
        rows.filter((pl.col("name") == "thread_name") & pl.col("value").is_not_null())
        .select("pid", "tid", pl.col("value").alias("lane"))
        .unique(["pid", "tid"], keep="first", maintain_order=True)
    )
    python_pids = processes.filter(pl.col("layer") == PYTHON.name)["pid"].to_list()
    placed = _with_os_pid(processes, python_pids).with_columns(_device()).select("pid", "layer", "device", "os_pid")
    return Lanes(placed, threads, _generation(processes))


def _with_os_pid(processes: pl.DataFrame, python_pids: list[int]) -> pl.DataFrame:
    """The Python layer carries the true process number, the others at most its low 22 bits."""
    whole = {pid % OS_PIDS: pid for pid in python_pids}
    cut = pl.col("pid") // (SORTS * DEVICES)
    return processes.with_columns(
        pl.when(pl.col("layer") == PYTHON.name)
        .then(pl.col("pid"))
        .when(pl.col("layer").is_in([layer.name for layer in MINDSPORE_LAYERS]))
        .then(None)
        .when(_made_by_formula())
        .then(cut.replace(whole) if whole else cut)
        .alias("os_pid")
    )


def _made_by_formula() -> pl.Expr:
    """Old timelines (2023) number their layers freely; there the pid tells neither process nor device."""
    return ((pl.col("pid") // DEVICES) % SORTS == pl.col("sort_index") % SORTS).fill_null(True)


def _device() -> pl.Expr:
    labelled = pl.col("label").str.extract(r"^[A-Z]+ (\d+)$", 1).cast(pl.Int32, strict=False)
    on_host = (pl.col("label") == "CPU") | pl.col("layer").is_in(_ON_HOST)
    counted = (pl.col("pid") % DEVICES).cast(pl.Int32)
    return pl.coalesce(labelled, pl.when(~on_host.fill_null(False) & _made_by_formula()).then(counted)).alias("device")


def _generation(processes: pl.DataFrame) -> str:
    """G1 or G3 by the words that changed; G2 timelines look like G3; empty when nothing device-like is there."""
    layers = set(processes["layer"].drop_nulls())
    labels = [label for label in processes["label"].drop_nulls() if label.startswith("NPU")]
    if COMMUNICATION.older in layers:
        return "G1"
    if COMMUNICATION.name in layers or any(label != "NPU" for label in labels):
        return "G3"
    return "G1" if labels else ""

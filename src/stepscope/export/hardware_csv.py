# SPDX-License-Identifier: Apache-2.0
"""Files about caches, links, network ports and the AI CPU (outputs.md 10)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.render.csv_file import NOT_KNOWN, Cells, fraction, moment, text, whole, write_csv
from stepscope.tables import Tables

_DEVICE = whole("Device_id", "device", NOT_KNOWN)

# Link counters as the csv orders them, and the series of the timeline (enums.md 6) that stands for each.
_PCIE = {
    "Tx_p_avg(MB/s)": ("PCIe_post", "Tx"),
    "Tx_np_avg(MB/s)": ("PCIe_nonpost", "Tx"),
    "Tx_cpl_avg(MB/s)": ("PCIe_cpl", "Tx"),
    "Tx_latency_avg(us)": ("PCIe_nonpost_latency", "Tx"),
    "Rx_p_avg(MB/s)": ("PCIe_post", "Rx"),
    "Rx_np_avg(MB/s)": ("PCIe_nonpost", "Rx"),
    "Rx_cpl_avg(MB/s)": ("PCIe_cpl", "Rx"),
}
_HCCS = {"Tx (MB/s)": ("Tx", "Tx(MB/s)"), "Rx (MB/s)": ("Rx", "Rx(MB/s)")}

# Columns of a network port, and the series of the timeline for each.
PORT_COLUMNS = {
    "Bandwidth(MB/s)": "Bandwidth(MB/s)",
    "Rx Bandwidth efficiency(%)": "Rx Bandwidth Efficiency",
    "rxPacket/s": "Rx Packets",
    "rxError rate(%)": "Rx Error Rate",
    "rxDropped rate(%)": "Rx Dropped Rate",
    "Tx Bandwidth efficiency(%)": "Tx Bandwidth Efficiency",
    "txPacket/s": "Tx Packets",
    "txError rate(%)": "Tx Error Rate",
    "txDropped rate(%)": "Tx Dropped Rate",
}


def write_l2_cache(tables: Tables, folder: Path) -> list[Path]:
    return _write_rates(tables, folder / "l2_cache.csv", "l2", ("Hit Rate", "Victim Rate"))


def write_soc_pmu(tables: Tables, folder: Path) -> list[Path]:
    return _write_rates(tables, folder / "soc_pmu.csv", "tlb", ("TLB Hit Rate", "TLB Miss Rate"))


def _write_rates(tables: Tables, path: Path, kind: str, titles: tuple[str, str]) -> list[Path]:
    rows = tables.cache_rates.filter(pl.col("kind") == kind)
    rates = (rows["hit_rate"].round(6), rows["other_rate"].round(6))
    columns = [
        _DEVICE,
        whole("Stream Id", "stream", NOT_KNOWN),
        whole("Task Id", "task_id", NOT_KNOWN),
        *(fraction(title, rate, NOT_KNOWN) for title, rate in zip(titles, rates, strict=True)),
        text("Op Name", "op_name", NOT_KNOWN),
    ]
    return write_csv(path, rows, columns)


def write_data_preprocess(tables: Tables, folder: Path) -> list[Path]:
    rows = tables.aicpu_tasks
    times = {
        "compute_us": "Compute_time(us)",
        "memcpy_us": "Memcpy_time(us)",
        "task_us": "Task_time(us)",
        "dispatch_us": "Dispatch_time(us)",
        "total_us": "Total_time(us)",
    }
    columns = [
        _DEVICE,
        moment("Timestamp(us)", rows, "time_ns"),
        text("Node", "node", NOT_KNOWN),
        *(fraction(title, rows[name].round(3), NOT_KNOWN) for name, title in times.items()),
        whole("Stream ID", "stream", NOT_KNOWN),
        whole("Task ID", "task_id", NOT_KNOWN),
    ]
    return write_csv(folder / "data_preprocess.csv", rows, columns)


def write_pcie(tables: Tables, folder: Path) -> list[Path]:
    rows = _link_rows(tables, "PCIe", _PCIE)
    return write_csv(folder / "pcie.csv", rows, [_DEVICE, text("Mode", "mode"), *_values(rows, min="Min", max="Max", avg="Avg")])


def write_hccs(tables: Tables, folder: Path) -> list[Path]:
    rows = _link_rows(tables, "HCCS", _HCCS)
    return write_csv(
        folder / "hccs.csv", rows, [_DEVICE, text("Mode", "mode"), *_values(rows, max="Max", min="Min", avg="Average")]
    )


def _values(rows: pl.DataFrame, **titles: str) -> list[Cells]:
    return [fraction(title, rows[name].round(3), NOT_KNOWN) for name, title in titles.items()]


def _link_rows(tables: Tables, source: str, modes: dict[str, tuple[str, str]]) -> pl.DataFrame:
    """Smallest, largest and mean value of each counter: as the source summed them up, else over the samples."""
    summary = tables.link_summary.filter(pl.col("source") == source)
    if summary.height:
        return summary.sort("device", maintain_order=True)
    samples = tables.counters.filter(pl.col("source") == source).with_columns(pl.col("name", "series").cast(pl.String))
    rows = []
    for place, (mode, (name, series)) in enumerate(modes.items()):
        # Some sources give smallest and largest value of each sample as series of their own.
        of = {kind: samples.filter((pl.col("name") == name) & (pl.col("series") == series + kind)) for kind in ("", " Min", " Max")}
        least, most = (of[kind] if of[kind].height else of[""] for kind in (" Min", " Max"))
        average = of[""].group_by("device").agg(pl.col("value").mean().alias("avg"))
        for part, reduced in ((least, pl.col("value").min().alias("min")), (most, pl.col("value").max().alias("max"))):
            average = average.join(part.group_by("device").agg(reduced), on="device", how="left", nulls_equal=True)
        rows.append(average.with_columns(pl.lit(mode).alias("mode"), pl.lit(place).alias("place")))
    return pl.concat(rows).sort("device", "place")


def write_nic(tables: Tables, folder: Path) -> list[Path]:
    return _write_ports(tables, folder / "nic.csv", "NIC")


def write_roce(tables: Tables, folder: Path) -> list[Path]:
    return _write_ports(tables, folder / "roce.csv", "RoCE")


def _write_ports(tables: Tables, path: Path, source: str) -> list[Path]:
    """One row per sample of a port."""
    samples = tables.counters.filter(pl.col("source") == source)
    if not samples.height:
        return []
    to_title = {series: title for title, series in PORT_COLUMNS.items()}
    port = pl.coalesce("instance", pl.col("name").cast(pl.String).str.extract(r"Port (\d+)", 1).cast(pl.Int64))
    samples = samples.with_columns(port.alias("port"), pl.col("series").cast(pl.String).replace(to_title).alias("title"))
    rows = samples.filter(pl.col("title").is_in(list(PORT_COLUMNS))).pivot(
        "title", index=["device", "time_ns", "port"], values="value", aggregate_function="first"
    )
    rows = rows.sort("device", "time_ns", "port")
    empty = pl.Series([None] * rows.height, dtype=pl.Float64)
    columns = [
        _DEVICE,
        moment("Timestamp(us)", rows, "time_ns"),
        *(fraction(title, rows[title] if title in rows.columns else empty, NOT_KNOWN) for title in PORT_COLUMNS),
        whole("funcId", "port", NOT_KNOWN),
    ]
    return write_csv(path, rows, columns)

# SPDX-License-Identifier: Apache-2.0
"""Which rows the files about caches, links, network ports and the AI CPU get (docs/formats/outputs.md 10)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.formats.ascend import hardware
from stepscope.tables import Tables


def write_l2_cache(tables: Tables, folder: Path) -> list[Path]:
    return _write_cache(tables, folder, "l2")


def write_soc_pmu(tables: Tables, folder: Path) -> list[Path]:
    return _write_cache(tables, folder, "tlb")


def _write_cache(tables: Tables, folder: Path, kind: str) -> list[Path]:
    rows = tables.cache_rates.filter(pl.col("kind") == kind)
    return hardware.write_cache(folder / hardware.CACHE_FILES[kind], rows, kind)


def write_data_preprocess(tables: Tables, folder: Path) -> list[Path]:
    return hardware.write_aicpu(folder / hardware.AICPU_FILE, tables.aicpu_tasks)


def write_pcie(tables: Tables, folder: Path) -> list[Path]:
    return hardware.write_links(folder / hardware.LINK_FILES["PCIe"], _link_rows(tables, "PCIe"), "PCIe")


def write_hccs(tables: Tables, folder: Path) -> list[Path]:
    return hardware.write_links(folder / hardware.LINK_FILES["HCCS"], _link_rows(tables, "HCCS"), "HCCS")


def _link_rows(tables: Tables, source: str) -> pl.DataFrame:
    """Smallest, largest and mean value of each counter: as the source summed them up, else over the samples."""
    summary = tables.link_summary.filter(pl.col("source") == source)
    if summary.height:
        return summary.sort("device", maintain_order=True)
    samples = tables.counters.filter(pl.col("source") == source).with_columns(pl.col("name", "series").cast(pl.String))
    rows = []
    for place, (mode, (name, series)) in enumerate(hardware.LINK_MODES[source].items()):
        # Some sources give smallest and largest value of each sample as series of their own.
        of = {kind: samples.filter((pl.col("name") == name) & (pl.col("series") == series + kind)) for kind in ("", " Min", " Max")}
        least, most = (of[kind] if of[kind].height else of[""] for kind in (" Min", " Max"))
        average = of[""].group_by("device").agg(pl.col("value").mean().alias("avg"))
        for part, reduced in ((least, pl.col("value").min().alias("min")), (most, pl.col("value").max().alias("max"))):
            average = average.join(part.group_by("device").agg(reduced), on="device", how="left", nulls_equal=True)
        rows.append(average.with_columns(pl.lit(mode).alias("mode"), pl.lit(place).alias("place")))
    return pl.concat(rows).sort("device", "place")


def write_nic(tables: Tables, folder: Path) -> list[Path]:
    return hardware.write_ports(folder / hardware.PORT_FILES["NIC"], _port_rows(tables, "NIC"))


def write_roce(tables: Tables, folder: Path) -> list[Path]:
    return hardware.write_ports(folder / hardware.PORT_FILES["RoCE"], _port_rows(tables, "RoCE"))


def _port_rows(tables: Tables, source: str) -> pl.DataFrame:
    """One row per sample of a port, its series as columns by their titles."""
    samples = tables.counters.filter(pl.col("source") == source)
    to_title = {series: title for title, series in hardware.PORT_SERIES.items()}
    port = pl.coalesce("instance", pl.col("name").cast(pl.String).str.extract(r"Port (\d+)", 1).cast(pl.Int64, strict=False))
    samples = samples.with_columns(port.alias("instance"), pl.col("series").cast(pl.String).replace(to_title).alias("title"))
    rows = samples.filter(pl.col("title").is_in(list(hardware.PORT_SERIES))).pivot(
        "title", index=["device", "time_ns", "instance"], values="value", aggregate_function="first"
    )
    return rows.sort("device", "time_ns", "instance")

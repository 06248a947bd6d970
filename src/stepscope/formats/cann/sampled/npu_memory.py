# SPDX-License-Identifier: Apache-2.0
"""How much device memory the process, the whole device and each component of the runtime hold (docs/formats/cann.md 5.1)."""

from __future__ import annotations

import polars as pl

from stepscope.formats.ascend.db.schema import ENUMS, OLD_ENUMS
from stepscope.formats.ascend.memory import MODULE_MEM, MODULE_SERIES, NPU_MEM
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.sampled.series import Column, SampledRows, columns, counters, sampled_ns, series
from stepscope.tables import issues, lost

KB = 1024.0
_OWNERS = {0: "APP", 1: "Device"}
_MODULES = {**OLD_ENUMS["ENUM_MODULE"], **ENUMS["ENUM_MODULE"]}
_NEGATIVE = 1 << 63  # sizes from here on are negative: more was freed than was seen to be allocated


def npu_mem(part: Part, rows: Column) -> SampledRows:
    owner = pl.col("event").replace_strict(_OWNERS, default=None, return_dtype=pl.String)
    samples = columns(rows, "event", "ddr", "hbm", time_ns=sampled_ns(part, rows["time_us"])).with_columns(
        owner.alias("owner"), pl.col("ddr", "hbm").cast(pl.Float64) / KB
    )
    owned = samples.drop_nulls("owner")
    values = {"DDR": pl.col("ddr"), "HBM": pl.col("hbm"), "Memory": pl.col("ddr") + pl.col("hbm")}
    frames = [series(owned, part, NPU_MEM, pl.format(f"{{}}/{kind}", "owner"), "KB", value) for kind, value in values.items()]
    return counters(frames, lost(issues.UNKNOWN_KIND, "npu_mem", samples.height - owned.height, "owner"))


def npu_module_mem(part: Part, rows: Column) -> SampledRows:
    """Stamped by the host's counter, but by the logs of the device's folder."""
    samples = columns(rows, "module", "bytes", time_ns=part.host_counter.ns(rows["counter"]))
    module = pl.col("module")
    name = module.replace_strict(_MODULES, default=None, return_dtype=pl.String).fill_null(pl.format("module {}", module))
    size = pl.col("bytes")
    # As in the vendor's tool, -1 stands for a negative size.
    kilobytes = pl.when(size >= _NEGATIVE).then(-1.0).otherwise(size.cast(pl.Float64) / KB)
    return counters([series(samples, part, MODULE_MEM, name, MODULE_SERIES, kilobytes)])

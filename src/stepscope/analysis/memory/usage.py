# SPDX-License-Identifier: Apache-2.0
"""How much memory was in use: blocks held at an instant, peaks of components, and what operators allocated.

Times are ns on the clock of the tables, sizes bytes unless a name says otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.link import op_tree

CHANGES = ("increase", "count", "size")


def shown_blocks(allocations: pl.DataFrame) -> pl.DataFrame:
    """Table `allocations` with names as the vendor's files have them; blocks of the host only where there are no others."""
    on_device = allocations.filter(pl.col("device_type").ne_missing("cpu"))
    name = pl.col("name").cast(pl.String).fill_null("")
    named = pl.when((pl.col("component") == "GE").fill_null(False)).then("cann::" + name).otherwise(name)
    return (on_device if on_device.height else allocations).with_columns(named.alias("name"))


def touched_between(blocks: pl.DataFrame, low_ns: int, high_ns: int) -> pl.DataFrame:
    """Blocks that were allocated or released in [low_ns, high_ns)."""
    inside = [pl.col(name).is_between(low_ns, high_ns, closed="left") for name in ("start_ns", "release_ns")]
    return blocks.filter((inside[0] | inside[1]).fill_null(False))


def held_at(blocks: pl.DataFrame, time_ns: int) -> pl.DataFrame:
    """Blocks that are held at an instant, largest first."""
    held = pl.col("release_ns").is_null() | (pl.col("release_ns") > time_ns)
    rows = blocks.filter((pl.col("start_ns") <= time_ns) & held)
    return rows.sort(pl.col("bytes").abs(), descending=True, maintain_order=True)


def component_peaks(samples: pl.DataFrame) -> pl.DataFrame:
    """The largest sample of each component and when it was first reached: component, peak, time_ns; largest first.

    Args:
        samples: component, time_ns and `mb`.
    """
    at_peak = pl.col("mb") == pl.col("mb").max()
    peaks = samples.group_by("component", maintain_order=True).agg(
        peak=pl.col("mb").max(), time_ns=pl.col("time_ns").filter(at_peak).min()
    )
    return peaks.sort("peak", "component", descending=[True, False], nulls_last=True)


def operator_changes(ops: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """What operators allocated and released while they ran, by name, most allocated first.

    Columns: name; calls; increase (allocated minus released), count (allocations) and size (allocated) with operators
    called inside, and the same of the operator alone as self_increase, self_count, self_size. Names without any change
    are left out.

    Args:
        ops: table `ops`, linked.
        events: rows of `memory_events` with `bytes`; an event belongs to the innermost operator of its thread.
    """
    owner = op_tree.innermost(ops, events.select("pid", "tid", "time_ns"), by=("pid", "tid"))
    number = op_tree.row_numbers(owner)
    size = events["bytes"].to_numpy()
    known = number >= 0
    grows = known & (size > 0)

    def by_op(chosen: Any, values: Any) -> npt.NDArray[np.int64]:
        total = np.zeros(ops.height, dtype=np.int64)
        np.add.at(total, number[chosen], values)
        return total

    own = [by_op(known, size[known]), by_op(grows, 1), by_op(grows, size[grows])]
    inside = op_tree.subtree_sums(ops["parent"], *own)
    sums = {f"self_{key}": pl.Series(values) for key, values in zip(CHANGES, own, strict=True)}
    sums |= {key: pl.Series(values) for key, values in zip(CHANGES, inside, strict=True)}
    frame = (
        ops.select(pl.col("name").cast(pl.String))
        .with_columns(**sums)
        .group_by("name")
        .agg(pl.len().cast(pl.Int64).alias("calls"), pl.col(*sums).sum())
    )
    changed = frame.filter((pl.col("count") > 0) | (pl.col("increase") != 0))
    return changed.sort("self_size", "name", descending=[True, False])

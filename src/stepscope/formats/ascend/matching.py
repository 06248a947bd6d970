# SPDX-License-Identifier: Apache-2.0
"""Which row of a csv file tells of which event of a timeline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

_NEAR_NS = 100
_NONE = -1
Numbers = NDArray[np.int64]


def match(timeline: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """For each event of the timeline the row of the csv that tells of it, or null; each row is used once."""
    keys = ["start_ns", "name"]
    if not timeline["device"].null_count() and not rows["device"].null_count():
        keys.append("device")
    exact = [name for name in ("stream", "task_id") if name in timeline.columns and name in rows.columns]
    place, used = np.full(timeline.height, _NONE, np.int64), np.zeros(rows.height, bool)
    events = timeline.select(*keys, *exact).with_row_index("event")
    rows = rows.select(*keys, *exact).with_row_index("row")
    for pair, chosen in ((_alone, keys), (_equal, [*keys, *exact]), (_equal, keys), (_near, keys[1:])):
        if not events.height or not rows.height:
            break
        pairs = pair(events, rows, chosen)
        place[pairs["event"].to_numpy()] = pairs["row"].to_numpy()
        used[pairs["row"].to_numpy()] = True
        events = events.filter(place[events["event"].to_numpy()] == _NONE)
        rows = rows.filter(~used[rows["row"].to_numpy()])
    found = pl.Series("row", place)
    rows_or_null: pl.Series = found.set(found == _NONE, None).cast(pl.UInt32)
    return rows_or_null


def _alone(events: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Pairs of equal keys among those that share their start with no other: almost all, found by one whole number."""
    (starts, event), (row_starts, row) = _single(events), _single(rows)
    if not row.size:
        return pl.DataFrame(schema={"event": pl.UInt32, "row": pl.UInt32})
    at = np.searchsorted(row_starts, starts).clip(max=row.size - 1)
    hit = row_starts[at] == starts
    of_row = rows[row[at[hit]]].rename(lambda name: name if name == "row" else f"{name} of row")
    together = pl.concat([events[event[hit]], of_row], how="horizontal")
    pairs: pl.DataFrame = together.filter([pl.col(key) == pl.col(f"{key} of row") for key in keys]).select("event", "row")
    return pairs


def _single(frame: pl.DataFrame) -> tuple[Numbers, Numbers]:
    """Starts that occur once, in order, and their rows."""
    starts = frame["start_ns"]
    order = np.arange(frame.height) if starts.is_sorted() else starts.arg_sort().to_numpy()
    ordered = starts.to_numpy()[order]
    changes = np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])
    single = changes[1:] & changes[:-1]
    return ordered[single], order[single]


def _equal(events: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Pairs of equal keys; the first of each side goes with the first of the other."""
    turn = pl.int_range(pl.len()).over(keys).alias("turn")
    numbered = [frame.with_columns(turn) for frame in (events, rows)]
    return numbered[0].join(numbered[1], on=[*keys, "turn"], how="inner").select("event", "row")


def _near(events: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Pairs of equal keys that start almost together: the timeline rounds what the csv cuts off (communication, G1)."""
    nearest = rows.sort("start_ns").join_asof(
        events.sort("start_ns"), on="start_ns", by=list(keys), strategy="nearest", tolerance=_NEAR_NS, check_sortedness=False
    )
    return nearest.drop_nulls("event").unique("event", keep="first", maintain_order=True).select("event", "row")

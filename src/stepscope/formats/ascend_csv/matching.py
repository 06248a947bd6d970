# SPDX-License-Identifier: Apache-2.0
"""Which row of a csv file tells of which event of a timeline."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

_NEAR_NS = 100
_NO_PAIRS = pl.DataFrame(schema={"event": pl.UInt32, "row": pl.UInt32})


def match(timeline: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """For each event of the timeline the row of the csv that tells of it, or null; each row is used once."""
    keys = ["start_ns", "name"]
    if not timeline["device"].null_count() and not rows["device"].null_count():
        keys.append("device")
    exact = [name for name in ("stream", "task_id") if name in timeline.columns and name in rows.columns]
    events = timeline.select(*keys, *exact).with_row_index("event")
    rows = rows.select(*keys, *exact).with_row_index("row")
    found = [_NO_PAIRS]
    for pair, chosen in ((_alone, keys), (_equal, [*keys, *exact]), (_equal, keys), (_near, keys[1:])):
        if not events.height or not rows.height:
            break
        pairs = pair(events, rows, chosen)
        found.append(pairs)
        events = events.join(pairs, on="event", how="anti")
        rows = rows.join(pairs, on="row", how="anti")
    place = timeline.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias("event"))
    return place.join(pl.concat(found), on="event", how="left", maintain_order="left")["row"]


def _alone(events: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Pairs of equal keys among those that share their start with no other: almost all, found by one whole number."""
    single = [frame.filter(~frame["start_ns"].is_duplicated()) for frame in (events, rows)]
    together = single[0].join(single[1], on="start_ns", how="inner", suffix=" of row")
    same = [pl.col(key) == pl.col(f"{key} of row") for key in keys if key != "start_ns"]
    return together.filter(same).select("event", "row")


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

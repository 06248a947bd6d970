# SPDX-License-Identifier: Apache-2.0
"""How fast each pair of ranks is, beside pairs of the same transport, size of packets and locality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from stepscope.cluster.digest import Digests
from stepscope.cluster.match import Group

SLOW = 0.7  # of the middle bandwidth of links of the same transport, size and locality
LEAST = 3  # samples of a link, and links alike, below which none is called slow
PAIR = ("src", "dst", "transport", "size_class")


@dataclass(frozen=True)
class SlowPair:
    """Two ranks whose link is slow.

    Attributes:
        ratio: of the usual bandwidth, where most of its time went.
        groups: numbers of the groups that use it.
    """

    ranks: tuple[int, int]
    transport: str
    ratio: float
    gbps: float
    usual_gbps: float
    groups: tuple[int, ...]


def recorded(digests: Digests) -> pl.DataFrame:
    """Traffic between pairs as recorded, by step and group."""
    return digests["cluster_links"].drop_nulls(["src", "dst"]).select(
        "group", "src", "dst", pl.col("transport").fill_null("?"), pl.col("size_class").cast(pl.Int64).fill_null(0), "count",
        "bytes", "time_ns",
    )  # fmt: skip


def pair_speeds(rows: pl.DataFrame, digests: Digests) -> pl.DataFrame:
    """Pairs by transport and size of packets: traffic, middle bandwidth (`speed`), that of pairs alike (`usual`), whether slow.

    Args:
        rows: src, dst, transport, size_class, count, bytes, time_ns; several samples of each pair.
    """
    speed = pl.when(pl.col("time_ns") > 0).then(pl.col("bytes") / pl.col("time_ns"))
    each = rows.group_by(PAIR).agg(pl.col("count", "bytes", "time_ns").sum(), speed.median().alias("speed"))
    host = digests["cluster_ranks"].select("rank", "host")
    for end in ("src", "dst"):
        each = each.join(host.rename({"rank": end, "host": f"{end}_host"}), on=end, how="left")
    alike = ("transport", "size_class", "local")
    each = each.with_columns(local=(pl.col("src_host") == pl.col("dst_host")).fill_null(False))
    each = each.with_columns(usual=pl.col("speed").median().over(alike), alike=pl.len().over(alike))
    slow = (pl.col("speed") < SLOW * pl.col("usual")) & (pl.col("count") >= LEAST) & (pl.col("alike") >= LEAST)
    return each.with_columns(slow=slow.fill_null(False)).sort(PAIR)


def slow_pairs(digests: Digests, groups: Sequence[Group]) -> list[SlowPair]:
    """Pairs that are slow in the sizes of packets that take most of their time, slowest first."""
    rows = recorded(digests)
    if not rows.height:
        return []
    each = pair_speeds(rows, digests)
    low, high = pl.min_horizontal("src", "dst").alias("low"), pl.max_horizontal("src", "dst").alias("high")
    time = pl.col("time_ns").filter("slow").sum() / pl.col("time_ns").sum()
    most = pl.col("time_ns").filter("slow").arg_max()
    told = each.group_by(low, high).agg(
        time.alias("share"),
        *(pl.col(name).filter("slow").get(most).alias(name) for name in ("transport", "speed", "usual")),
    )  # fmt: skip
    keys = rows.group_by(low, high).agg(pl.col("group").drop_nulls().unique().sort())
    used = {(first, second): set(names) for first, second, names in keys.iter_rows()}
    found = []
    for first, second, share, transport, speed, usual in told.iter_rows():
        if not share or share < 0.5:
            continue
        pair = (int(first), int(second))
        mine = tuple(
            number
            for number, group in enumerate(groups)
            if set(group.keys) & used.get(pair, set()) and set(pair) <= set(group.members)
        )
        found.append(SlowPair(pair, str(transport), speed / usual, speed, usual, mine))
    return sorted(found, key=lambda one: (one.ratio, one.ranks))

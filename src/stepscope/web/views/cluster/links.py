# SPDX-License-Identifier: Apache-2.0
"""Which rank sends to which, how much and how fast."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from stepscope.cluster.network.sizes import least_bytes
from stepscope.cluster.network.speeds import pair_speeds, recorded
from stepscope.web.parameters import Query
from stepscope.web.problems import missing
from stepscope.web.run_analysis import RunAnalysis

MOST_LINKS = 20_000
ALL = "all"


def matrix(run: RunAnalysis, query: Query) -> dict[str, Any]:
    """Links between ranks by transport and size of packets; without records of links, point-to-point calls."""
    rows = links_of(run)
    if not rows.height:
        raise missing("communication", "neither links nor point-to-point calls in this run")
    transports = sorted(rows["transport"].unique().to_list())
    transport = query.choice("transport", [ALL, *transports])
    sizes = sorted(rows["size_class"].unique().to_list())
    size = query.choice("size", [ALL, *map(str, sizes)])
    if transport != ALL:
        rows = rows.filter(pl.col("transport") == transport)
    if size != ALL:
        rows = rows.filter(pl.col("size_class") == int(size))
    by = ["src", "dst"]
    # What a pair usually reaches with what it sends: each transport and size takes as long as it does with links alike.
    known = pl.col("usual") > 0
    usual = pl.col("bytes").filter(known).sum() / (pl.col("bytes") / pl.col("usual")).filter(known).sum()
    found = rows.group_by(by).agg(
        pl.col("bytes").sum(), pl.col("time_ns").sum(), pl.col("count").sum(), pl.col("slow").any(),
        pl.col("transport").unique().sort().str.join("+"), usual.fill_nan(None).alias("usual"),
    ).sort(by)  # fmt: skip
    found = found.with_columns(bandwidth=pl.when(pl.col("time_ns") > 0).then(pl.col("bytes") / pl.col("time_ns")))
    shown = found.head(MOST_LINKS).select(
        "src", "dst", "transport", "count", "bytes", (pl.col("time_ns") / 1e6).alias("time_ms"), "bandwidth", "usual", "slow"
    )
    ranks = sorted({*found["src"].to_list(), *found["dst"].to_list()})
    return {
        "transports": [ALL, *transports], "transport": transport, "size": size, "unit": "GB/s",
        "sizes": [ALL, *({"class": one, "from_bytes": least_bytes(one)} for one in sizes)],
        "ranks": ranks, "links": shown.to_dicts(), "thinned": found.height > MOST_LINKS,
    }  # fmt: skip


def links_of(run: RunAnalysis) -> pl.DataFrame:
    return run.once("links", lambda: _links(run))


def _links(run: RunAnalysis) -> pl.DataFrame:
    digests = run.analysis.digests
    rows = recorded(digests)
    if not rows.height:
        rows = _pairs(run)
    return pair_speeds(rows, digests) if rows.height else rows


def _pairs(run: RunAnalysis) -> pl.DataFrame:
    """Point-to-point calls: a pair's transfer is the shorter of the two durations, which holds no waiting."""
    calls = run.analysis.digests["cluster_calls"].filter(pl.col("op").is_in(["send", "recv"]))
    rows = run.analysis.matches.rows.drop_nulls(["src", "dst", "call"]).select("rank", "step", "index", "call", "src", "dst")
    both = calls.join(rows, on=["rank", "step", "index"], nulls_equal=True)
    each = both.group_by("call").agg(
        pl.col("src", "dst").first(), pl.col("bytes").max(), (pl.col("end_ns") - pl.col("start_ns")).min().alias("time_ns")
    )
    each = each.filter((pl.col("bytes") > 0) & (pl.col("time_ns") > 0))
    size = np.clip(np.floor(np.log(np.maximum(each["bytes"].to_numpy(), 1) / 4096) / np.log(4)), -1, 9).astype(np.int64) + 1
    return each.select(
        "src", "dst", pl.lit("p2p").alias("transport"), pl.Series("size_class", size, dtype=pl.Int64),
        pl.lit(1, pl.Int64).alias("count"),
        pl.col("bytes", "time_ns").cast(pl.Float64),
    )  # fmt: skip

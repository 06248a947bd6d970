# SPDX-License-Identifier: Apache-2.0
"""Algorithm and bus bandwidth of communication calls, by operator, size of the group and size of the message.

The message is what the operator moves in all: of an all-gather the gathered tensor, of a reduce-scatter the one that is scattered.
Algorithm bandwidth is message by time; bus bandwidth is what crosses the slowest link in that time, and compares with the bandwidth
of the hardware whatever the number of ranks.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.cluster.digest import Digests
from stepscope.cluster.match import Matches
from stepscope.cluster.network.sizes import least_bytes, size_class
from stepscope.cluster.outside import places_of


def bandwidths(digests: Digests, matches: Matches) -> list[dict[str, Any]]:
    """One row per operator, number of ranks and class of messages, most time first.

    A call takes from its last member's start to its end, so that waiting does not count; `at_least` where members were not
    recorded: one of them may have come later, and the bandwidth may be higher. Calls of unknown or uneven size are left out.
    """
    calls = digests["cluster_calls"].filter((pl.col("bytes") > 0) & ~pl.col("variable").fill_null(False) & (pl.col("folded") == 1))
    if not calls.height:  # the small files of a capture do not say how much was moved
        return []
    places = {gid: places_of(digests, group) for gid, group in enumerate(matches.groups)}
    size = pl.DataFrame({"gid": list(places), "places": list(places.values())}, schema={"gid": pl.Int64, "places": pl.Int64})
    seen = pl.DataFrame({"seen": matches.size, "expected": matches.expected}).with_row_index("call").cast({"call": pl.Int64})
    source = digests["cluster_ranks"].select("rank", kineto=pl.col("source").str.starts_with("kineto").fill_null(False))
    members = (
        matches.rows.drop_nulls("call")
        .select("rank", "step", "index", "call", "gid", pair=pl.col("src").is_not_null())
        .join(calls, on=["rank", "step", "index"], nulls_equal=True)
        .join(source, on="rank", how="left")
    )
    each = (
        members.group_by("call")
        .agg(
            pl.col("op").replace({"recv": "send"}).first(),
            pl.col("bytes", "kineto", "gid", "pair").first(),
            (pl.col("end_ns") - pl.col("start_ns")).min().alias("time_ns"),
            pl.col("retry", "relay").any(),
        )
        .join(seen, on="call")
        .join(size, on="gid")
        .with_columns(ranks=pl.when("pair").then("expected").otherwise(pl.max_horizontal("expected", "places")))
        .filter((pl.col("ranks") > 1) & (pl.col("time_ns") > 0))
        .with_columns(message=_message())
        .with_columns(factor=_bus_factor(), **{"class": size_class(pl.col("message"))})
    )
    rows = (
        each.group_by("op", "ranks", "class")
        .agg(
            pl.len().alias("calls"),
            pl.col("message", "time_ns").sum(),
            (pl.col("message") / pl.col("time_ns")).median().alias("speed"),
            pl.col("factor").first(),
            (pl.col("seen") < pl.col("ranks")).any().alias("at_least"),
            pl.col("retry", "relay").sum(),
        )
        .sort(["time_ns", "op", "ranks", "class"], descending=[True, False, False, False])
    )
    return [_as_dict(row) for row in rows.iter_rows(named=True)]


def _message() -> pl.Expr:
    """Bytes that a call moves in all. Recorded is what one rank gives; on NPUs, of a reduce-scatter what it gets."""
    shares = (pl.col("op") == "allgather") | ((pl.col("op") == "reducescatter") & ~pl.col("kineto"))
    return pl.when(shares).then(pl.col("bytes") * pl.col("ranks")).otherwise("bytes")


def _bus_factor() -> pl.Expr:
    """Traffic of the slowest link by byte of the message."""
    others = (pl.col("ranks") - 1) / pl.col("ranks")
    return (
        pl.when(pl.col("op") == "allreduce")
        .then(2 * others)
        .when(pl.col("op").is_in(["allgather", "reducescatter", "alltoall"]))
        .then(others)
        .otherwise(1.0)
    )


def _as_dict(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "op": row["op"],
        "ranks": row["ranks"],
        "from_bytes": least_bytes(row["class"]),
        "calls": row["calls"],
        "bytes": row["message"],
        "ms": round(row["time_ns"] / 1e6, 6),
        "algorithm_gbps": round(row["speed"], 3),
        "bus_gbps": round(row["speed"] * row["factor"], 3),
        "at_least": row["at_least"],
        "retried": row["retry"],
        "relayed": row["relay"],
    }

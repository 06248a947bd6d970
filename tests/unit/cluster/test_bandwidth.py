"""Algorithm and bus bandwidth, against figures worked out by hand."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.cluster.digest import Digests, member_lists
from stepscope.cluster.match import match
from stepscope.cluster.network.bandwidth import bandwidths
from stepscope.tables.cluster import CLUSTER_TABLES

MB = 1_000_000
RANKS = 4


def digests(*calls, source="ascend_db", ranks=RANKS, listed=RANKS) -> Digests:
    """Calls of all ranks, as (op, bytes, ns that the transfer takes); rank r starts r µs early and waits."""
    rows = []
    for rank in range(ranks):
        for number, (op, size, ns, *more) in enumerate(calls):
            end = 1_000_000 * (number + 1)
            early = 1_000 * (ranks - 1 - rank)
            rows.append({"rank": rank, "step": 1, "index": number, "group": "g", "op": op, "bytes": size, "lane": "0", "folded": 1,
                         "start_ns": end - ns - early, "end_ns": end, **(more[0] if more else {})})  # fmt: skip
    keys, lists = member_lists([tuple(range(listed))] * ranks)
    groups = pl.DataFrame({"rank": range(ranks), "group": "g", "pg_name": "dp"}).with_columns(keys)
    made = {
        "cluster_calls": pl.DataFrame(rows, infer_schema_length=None), "cluster_groups": groups, "cluster_members": lists,
        "cluster_ranks": pl.DataFrame({"rank": range(ranks), "source": source}),
    }  # fmt: skip
    return Digests({name: CLUSTER_TABLES[name].conform(frame) for name, frame in made.items()})


def rows(made: Digests):
    return {one["op"]: one for one in bandwidths(made, match(made))}


def test_an_all_reduce_takes_from_the_last_start_and_crosses_the_link_twice():
    (one,) = rows(digests(("allreduce", 8 * MB, 100_000))).values()
    assert (one["ranks"], one["calls"], one["bytes"], one["ms"], one["at_least"]) == (4, 1, 8 * MB, 0.1, False)
    assert one["algorithm_gbps"] == 80.0  # 8 MB in 0.1 ms
    assert one["bus_gbps"] == 120.0  # 2 · 3/4 of it
    assert one["from_bytes"] == 4 * 1024 * 1024


@pytest.mark.parametrize(("source", "scattered"), [("ascend_db", 32), ("kineto", 8)])
def test_what_one_rank_gives_or_gets_is_a_share_of_the_message(source, scattered):
    found = rows(digests(("allgather", 8 * MB, 100_000), ("reducescatter", 8 * MB, 100_000), source=source))
    assert found["allgather"]["bytes"] == 32 * MB
    assert found["allgather"]["bus_gbps"] == 240.0  # 320 · 3/4
    assert found["reducescatter"]["bytes"] == scattered * MB


def test_messages_are_told_apart_by_size_and_the_middle_speed_counts():
    made = digests(*(("allreduce", 8 * MB, ns) for ns in (100_000, 100_000, 400_000)), ("allreduce", 100, 10_000))
    large, small = bandwidths(made, match(made))
    assert (large["calls"], large["algorithm_gbps"], large["ms"]) == (3, 80.0, 0.6)
    assert (small["from_bytes"], small["bytes"]) == (0, 100)


def test_what_lacks_ranks_is_a_bound_and_what_has_uneven_sizes_is_left_out():
    made = digests(("allreduce", 8 * MB, 100_000), ("alltoall", 8 * MB, 100_000, {"variable": True}), ranks=3)
    (one,) = bandwidths(made, match(made))
    assert (one["op"], one["ranks"], one["at_least"]) == ("allreduce", 4, True)


def test_retried_calls_are_counted_once_however_many_ranks_say_so():
    made = digests(("allreduce", 8 * MB, 100_000, {"retry": True}), ("allreduce", 8 * MB, 100_000))
    (one,) = bandwidths(made, match(made))
    assert (one["calls"], one["retried"], one["relayed"]) == (2, 1, 0)

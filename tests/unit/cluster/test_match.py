"""Which calls of different ranks are the same call."""

from __future__ import annotations

import polars as pl

from stepscope.cluster.digest import Digests, MemberLists, member_lists, union_digests
from stepscope.cluster.match import match
from stepscope.cluster.simulate import Plan, digests_of, record
from stepscope.tables.cluster import CLUSTER_TABLES


def calls(*rows):
    """rank, step, group, op, bytes, peer"""
    frame = pl.DataFrame(rows, schema=["rank", "step", "group", "op", "bytes", "peer"], orient="row", infer_schema_length=None)
    return frame.with_columns(index=pl.int_range(pl.len()).over("rank", "step"), lane=pl.lit("0"), folded=1)


def digests(frame, groups=()):
    schema = {"rank": pl.Int64, "group": pl.String, "pg_name": pl.String}
    keys, lists = member_lists(members for *_, members in groups)
    listed = pl.DataFrame([row[:3] for row in groups], schema=schema, orient="row").with_columns(keys)
    ranks = pl.DataFrame({"rank": sorted(set(frame["rank"].to_list()))})
    made = {"cluster_calls": frame, "cluster_groups": listed, "cluster_members": lists, "cluster_ranks": ranks}
    return Digests({name: CLUSTER_TABLES[name].conform(one) for name, one in made.items()})


def numbers(matches):
    return {rank: part["call"].to_list() for (rank,), part in matches.rows.group_by("rank")}


def test_the_nth_call_of_a_group_is_one_call():
    found = match(digests(calls(*((rank, 1, "g", op, 8, None) for rank in (0, 1) for op in ("allreduce", "allgather")))))
    assert numbers(found) == {0: [0, 1], 1: [0, 1]}
    assert found.quality == {"rows": 4, "matched": 4, "shifted": 0, "dropped": 0}


def test_steps_are_never_mixed():
    found = match(digests(calls((0, 1, "g", "allreduce", 8, None), (1, 2, "g", "allreduce", 8, None))))
    assert found.size.tolist() == [1, 1]


def test_a_capture_that_began_late_is_shifted():
    frame = calls(
        *((0, 1, "g", op, size, None) for op, size in (("allreduce", 8), ("allgather", 16), ("allreduce", 32))),
        *((1, 1, "g", op, size, None) for op, size in (("allreduce", 8), ("allgather", 16), ("allreduce", 32))),
        *((2, 1, "g", op, size, None) for op, size in (("allgather", 16), ("allreduce", 32))),
    )
    found = match(digests(frame))
    assert numbers(found)[2] == [1, 2]
    assert found.shifted == 1


def test_sequences_that_fit_nowhere_are_dropped_and_counted():
    frame = calls((0, 1, "g", "allreduce", 8, None), (1, 1, "g", "allreduce", 8, None), (2, 1, "g", "broadcast", 9, None))
    found = match(digests(frame))
    assert found.dropped == 1
    assert numbers(found)[2] == [None]


def test_groups_are_their_members_not_their_names():
    frame = calls((0, 1, "a", "allreduce", 8, None), (1, 1, "b", "allreduce", 8, None), (2, 1, "a", "allreduce", 8, None))
    groups = [(0, "a", "dp", [0, 1]), (1, "b", "dp", [0, 1]), (2, "a", "dp", [2, 3])]
    found = match(digests(frame, groups))
    assert numbers(found)[0] == numbers(found)[1]
    assert numbers(found)[2] != numbers(found)[0]
    assert sorted(zip(found.size.tolist(), found.expected.tolist(), strict=True)) == [(1, 2), (2, 2)]


def test_sends_meet_receives():
    frame = calls((0, 1, "p", "send", 8, 1), (0, 1, "p", "recv", 8, 1), (1, 1, "p", "recv", 8, 0), (1, 1, "p", "send", 8, 0))
    found = match(digests(frame, [(0, "p", "pp", [0, 1]), (1, "p", "pp", [0, 1])]))
    assert numbers(found)[0] == numbers(found)[1]


def test_a_group_of_one_is_local():
    found = match(digests(calls((0, 1, "g", "allreduce", 8, None)), [(0, "g", "tp", [0])]))
    assert numbers(found) == {0: [None]}


def test_a_whole_simulated_cluster_matches():
    found = match(digests_of(record(Plan("megatron", tp=2, pp=2, dp=2), 2, 5)))
    assert found.quality["matched"] == found.quality["rows"]
    assert (found.size == found.expected).all()


def test_a_list_of_members_is_kept_once_however_many_ranks_have_it():
    parts = [digests_of(record(Plan("ddp", dp=8, micro=1, layers=1), 1, 1)).filter([rank]) for rank in range(8)]
    lists = MemberLists()
    thin = [lists.take(part) for part in parts]
    assert [part["cluster_members"].height for part in thin] == [0] * 8
    whole = lists.give(union_digests(thin))
    assert whole["cluster_members"]["members"].to_list() == [list(range(8))]
    assert [group.members for group in match(whole.filter([3, 5])).groups] == [tuple(range(8))]
    assert match(whole).rows.equals(match(union_digests(parts)).rows)


def test_equal_names_of_groups_with_other_members_are_other_groups():
    frame = calls(*((rank, 1, "1", "allreduce", 8, None) for rank in range(4)))
    found = match(digests(frame, [(rank, "1", "dp", [0, 2] if rank % 2 == 0 else [1, 3]) for rank in (0, 1, 3)]))
    assert sorted(group.members for group in found.groups) == [(0, 2), (1, 3)]
    assert numbers(found) == {0: [0], 1: [1], 2: [0], 3: [1]}

"""Queues of communication calls that the capture does not name."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from stepscope.cluster.read.queues import common_queues

US = 1000


def calls(*rows: tuple[str, str, int, int, int], streams: bool = False) -> tuple[pl.DataFrame, np.ndarray]:
    """Of group, operator, launch, start and end in us."""
    frame = pl.DataFrame(rows, schema=["group", "op", "launch", "start_ns", "end_ns"], orient="row")
    frame = frame.with_columns(pl.col("start_ns", "end_ns", "launch") * US)
    stream = pl.col("group").cast(pl.Categorical).to_physical().cast(pl.Int64) if streams else pl.lit(None, pl.Int64)
    return frame.with_columns(stream=stream), frame["launch"].to_numpy()


def steps(*rows: tuple[str, str, int, int, int], count: int = 4) -> list[tuple[str, str, int, int, int]]:
    return [(group, op, *(10_000 * step + at for at in times)) for step in range(count) for group, op, *times in rows]


# Gathered ahead while the gradients of the layer before are reduced: in the shard, then among the replicas.
SHARDED = (
    ("shard", "allgather", 100, 200, 600),
    ("shard", "reducescatter", 110, 200, 900),
    ("replicas", "allreduce", 110, 900, 3000),
    ("shard", "reducescatter", 1200, 3001, 3700),
    ("replicas", "allreduce", 1200, 3700, 5000),
)


def test_calls_that_wait_for_those_of_another_group_share_its_queue():
    lane = common_queues(*calls(*steps(*SHARDED))).to_list()
    gathered, reduced, replicas = lane[:3]
    assert reduced == replicas == "shard/reducescatter"
    assert gathered == "shard/allgather", "it overlaps the others of its group"
    assert lane == [gathered, *[reduced] * 4] * 4


@pytest.mark.parametrize(
    "rows",
    [
        steps(*SHARDED, count=1)[:4],  # that happens once or twice by chance
        steps(("shard", "reducescatter", 110, 200, 900), ("replicas", "allreduce", 890, 901, 3000)),  # launched just then
        steps(("shard", "reducescatter", 110, 200, 900), ("replicas", "allreduce", 110, 990, 3000)),  # something else was between
    ],
)
def test_groups_without_that_evidence_have_queues_of_their_own(rows: list[tuple[str, str, int, int, int]]):
    lanes = dict(zip((group for group, *_ in rows), common_queues(*calls(*rows)).to_list(), strict=True))
    assert lanes["replicas"] == "replicas"
    assert lanes["shard"].startswith("shard")


def test_groups_that_overlap_somewhere_are_apart():
    rows = steps(("a", "allreduce", 100, 200, 900), ("b", "allreduce", 100, 900, 3000))
    rows += [("a", "allreduce", 50_000, 50_100, 50_900), ("b", "allreduce", 50_000, 50_200, 50_800)]
    assert common_queues(*calls(*rows)).to_list() == [group for group, *_ in rows]


def test_a_stream_is_the_queue():
    rows = steps(*SHARDED)
    found = common_queues(*calls(*rows, streams=True))
    assert found.n_unique() == 2
    assert not found.str.contains("shard").any()


def test_sends_and_receives_stay_apart():
    rows = steps(("a", "send", 100, 200, 900), ("b", "recv", 100, 900, 3000))
    assert common_queues(*calls(*rows)).to_list() == [group for group, *_ in rows]

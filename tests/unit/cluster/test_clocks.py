"""Clocks that are off by known amounts."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.cluster.clocks import align
from stepscope.cluster.match import match
from stepscope.cluster.simulate import Plan, digests_of, record


@pytest.mark.parametrize("offset_ms", [0.0, 5.0, 2000.0])
def test_offsets_are_found_within_their_uncertainty(offset_ms):
    recording = record(Plan("megatron", tp=2, pp=2, dp=4, per_host=4), 4, 11, offset_ms=offset_ms)
    digests = digests_of(recording)
    clocks = align(digests, match(digests))
    middle = float(recording.step_ns.sum()) / 2
    truth = recording.offset_ns + recording.drift * middle
    error = clocks.offset_ns - (truth - truth[0])
    assert clocks.refused() == []
    assert np.abs(error).max() < 12_000
    assert (np.abs(error) <= 2 * clocks.sigma_ns).all()


def test_times_are_mapped_to_the_reference():
    recording = record(Plan("ddp", dp=8, per_host=2), 4, 3, offset_ms=50.0)
    digests = digests_of(recording)
    clocks = align(digests, match(digests))
    moment = recording.step_ns.sum() / 2
    moved = [clocks.to_reference(rank, recording.local(rank, [moment]))[0] for rank in range(8)]
    assert np.ptp(moved) < 25_000


def test_a_rank_without_calls_is_refused():
    digests = digests_of(record(Plan("ddp", dp=4), 2, 3))
    calls = digests["cluster_calls"]
    digests.frames["cluster_calls"] = calls.filter((calls["rank"] != 2) | calls["op"].is_null())
    clocks = align(digests, match(digests))
    assert clocks.refused() == [2]
    assert clocks.as_rows()[2]["offset_ns"] is None

"""Links between ranks as the page gets them, beside what is usual for links alike."""

from __future__ import annotations

from types import SimpleNamespace

import polars as pl
import pytest

from stepscope.cluster.digest import Digests
from stepscope.cluster.network.speeds import pair_speeds
from stepscope.web.parameters import Query
from stepscope.web.run_analysis import RunAnalysis
from stepscope.web.views.cluster.links import matrix

SMALL, LARGE = 3, 8


def links(*rows: tuple[int, int, int, float | None, float]) -> RunAnalysis:
    """Rows of src, dst, class of size, bytes, ns; ranks 0 to 3 are on one host, 4 to 7 on another."""
    digests = Digests({"cluster_ranks": pl.DataFrame({"rank": range(8), "host": ["a"] * 4 + ["b"] * 4})})
    frame = pl.DataFrame(rows, schema=["src", "dst", "size_class", "bytes", "time_ns"], orient="row")
    frame = frame.with_columns(transport=pl.lit("p2p"), count=pl.lit(4))
    run = RunAnalysis(SimpleNamespace(digests=digests), {})
    run.once("links", lambda: pair_speeds(frame, digests))
    return run


def shown(run: RunAnalysis, src: int, dst: int, **query: object) -> dict[str, object]:
    return next(one for one in matrix(run, Query(**query))["links"] if (one["src"], one["dst"]) == (src, dst))


def test_a_slow_link_is_told_beside_links_of_the_same_size_and_locality():
    inside = [(src, src + 1, LARGE, 1000.0, 10.0) for src in (0, 1, 2, 4, 5, 6)]  # 100 GB/s
    across = [(src, src + 4, LARGE, 1000.0, 100.0) for src in (0, 1, 2)]  # 10 GB/s
    run = links(*inside, *across, (3, 7, LARGE, 1000.0, 500.0))
    assert shown(run, 3, 7) == {
        "src": 3, "dst": 7, "transport": "p2p", "count": 4, "bytes": 1000.0, "time_ms": 0.0005, "bandwidth": 2.0, "usual": 10.0,
        "slow": True,
    }  # fmt: skip
    assert shown(run, 0, 1)["usual"] == 100.0


def test_what_is_usual_for_a_pair_weighs_each_size_as_the_pair_sends_it():
    """900 bytes at 90 GB/s and 100 at 5 take 30 ns: 33.3 GB/s."""
    large = [(src, src + 4, LARGE, 900.0, 10.0) for src in (0, 1, 2, 3)]
    small = [(src, src + 4, SMALL, 100.0, 20.0) for src in (0, 1, 2)]
    run = links(*large, *small, (3, 7, SMALL, 100.0, 190.0))
    own = shown(run, 3, 7)
    assert (own["bandwidth"], own["slow"]) == (5.0, True)
    assert own["usual"] == pytest.approx(1000 / 30)
    assert shown(run, 3, 7, size=SMALL)["usual"] == 5.0


def test_a_pair_without_times_has_no_usual_speed():
    own = shown(links((0, 1, LARGE, 1000.0, 0.0)), 0, 1)
    assert (own["bandwidth"], own["usual"], own["slow"]) == (None, None, False)

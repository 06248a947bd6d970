"""Several sources of one capture become one set of tables."""

from __future__ import annotations

import polars as pl

from stepscope.tables import ALL_TABLES, Facts, Tables, issues, lost
from stepscope.tables.union import union


def table(name: str, **columns: list[object]) -> pl.DataFrame:
    return ALL_TABLES[name].conform(pl.DataFrame(columns))


def device(number: int, starts: list[int], op: list[int | None]) -> Tables:
    return Tables(
        {
            "kernels": table("kernels", device=[number] * len(starts), start_ns=starts, op=op),
            "kernel_metrics": table("kernel_metrics", kernel=list(range(len(starts))), aic_total_time=[float(at) for at in starts]),
        }
    )


def test_rows_are_sorted_and_references_follow():
    host = Tables({"ops": table("ops", start_ns=[1, 2], end_ns=[9, 3])})
    both = union([host, device(1, [10, 30], [0, None]), device(0, [20], [1])]).check()
    assert both.kernels.select("device", "start_ns", "op").rows() == [(0, 20, 1), (1, 10, 0), (1, 30, None)]
    assert both.kernel_metrics.rows() == [(0, 20.0), (1, 10.0), (2, 30.0)]


def test_operators_of_two_sources_keep_parents_first():
    first = Tables({"ops": table("ops", start_ns=[5, 7], end_ns=[6, 8], parent=[None, 0])})
    second = Tables({"ops": table("ops", start_ns=[5], end_ns=[9])})
    both = union([first, second])
    assert both.ops.select("start_ns", "end_ns", "parent").rows() == [(5, 9, None), (5, 6, None), (7, 8, 1)]


def test_metrics_of_different_sets_stand_side_by_side():
    other = Tables({"kernel_metrics": table("kernel_metrics", kernel=[0], aiv_total_time=[7.0])})
    both = union([device(0, [1], [None]), other.replace(kernels=table("kernels", device=[1], start_ns=[1]))])
    assert both.kernel_metrics.rows() == [(0, 1.0, None), (1, None, 7.0)]


def test_facts_come_from_the_first_that_has_them():
    parts = [Tables({"meta": Facts(rank=2).table()}), Tables({"meta": Facts(rank=9, source="msprof", device_ids=(4,)).table()})]
    facts = union(parts).facts
    assert (facts.rank, facts.source, facts.device_ids) == (2, "msprof", (4,))


def test_quality_of_all_is_kept():
    parts = [
        Tables().with_quality(lost(issues.TRUNCATED_RECORD, "a", 1)),
        Tables().with_quality(lost(issues.TRUNCATED_RECORD, "b", 2)),
    ]
    assert union(parts).quality["count"].to_list() == [1, 2]

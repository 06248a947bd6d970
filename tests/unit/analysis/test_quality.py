# SPDX-License-Identifier: Apache-2.0
"""What `quality` says in words: per unit, only losses are summed, notes are notes."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analysis import quality
from stepscope.tables import Tables, issues, lost
from stepscope.tables.issues import REGISTER, Issue


def table(*rows: tuple[Issue, str, int]) -> pl.DataFrame:
    return Tables().with_quality(*(lost(issue, source, count) for issue, source, count in rows)).quality


@pytest.mark.parametrize(
    ("rows", "said", "chinese"),
    [
        pytest.param([], "nothing lost", "没有丢失数据", id="nothing"),
        pytest.param([(issues.TRUNCATED_RECORD, "a", 1)], "1 record lost", "丢失 1 条记录", id="one"),
        pytest.param(
            [(issues.TRUNCATED_RECORD, "a", 5), (issues.UNKNOWN_KIND, "b", 7)], "12 records lost", "丢失 12 条记录", id="same-unit"
        ),
        pytest.param(
            [(issues.UNKNOWN_FILE, "x", 1_000_000), (issues.TRUNCATED_RECORD, "a", 2)],
            "2 records, 1,000,000 bytes lost",
            "丢失 2 条记录、1,000,000 字节",
            id="units-apart",
        ),
        pytest.param(
            [(issues.ALLOCATED_BEFORE_RECORDING, "memory_events", 58)], "nothing lost; 1 note", "没有丢失数据；1 条说明", id="note"
        ),
        pytest.param(
            [(issues.INCOMPLETE_CLOCK, "a", 1), (issues.MISSING_NAMES, "a", 1), (issues.EMPTY_SAMPLE, "a", 3)],
            "nothing lost; 2 warnings, 1 note",
            "没有丢失数据；2 条警告；1 条说明",
            id="warnings",
        ),
    ],
)
def test_summary(rows, said, chinese):
    assert quality.summary(table(*rows)) == said
    assert quality.summary(table(*rows), "zh") == chinese


def test_rows_of_one_issue_are_one_sentence():
    found = quality.occurrences(
        table((issues.EMPTY_SAMPLE, "n", 1), (issues.UNKNOWN_FILE, "host/a", 600), (issues.UNKNOWN_FILE, "host/b", 400))
    )
    assert [(one.issue.name, one.sentence(), one.where()) for one in found] == [
        ("unknown-file", "1,000 bytes in 2 files not understood", "a; b"),
        ("empty-sample", "1 sample in which nothing was counted (normal)", "n"),
    ]


@pytest.mark.parametrize("issue", issues.HEADLINES, ids=lambda issue: issue.name)
def test_a_recording_that_did_not_end_is_said_first(issue):
    rows = table((issues.TRUNCATED_RECORD, "a", 3), (issue, "capture", 1))
    assert quality.headline(rows) == issue.sentence_for(1)
    assert quality.headline(rows, "zh") == issue.sentence_for(1, 1, "zh")
    assert quality.headline(table((issues.TRUNCATED_RECORD, "a", 3))) == ""


@given(st.lists(st.tuples(st.sampled_from(list(REGISTER.values())), st.sampled_from("abc"), st.integers(0, 10**12))))
def test_no_sum_mixes_units_or_counts_what_is_not_lost(rows):
    expected: dict[str, int] = {}
    for issue, _, count in rows:
        if issue.severity == "loss" and count:
            expected[issue.unit] = expected.get(issue.unit, 0) + count
    assert quality.lost_by_unit(table(*rows)) == expected
    for one in quality.occurrences(table(*rows)):
        assert one.count == sum(count for issue, _, count in rows if issue is one.issue)
        assert one.as_dict()["unit"] == one.issue.unit


def test_as_dict_has_both_languages():
    said = quality.as_dict(table((issues.ALLOCATED_BEFORE_RECORDING, "memory_events", 58)))
    assert said == {
        "complete": True,
        "summary": {"en": "nothing lost; 1 note", "zh": "没有丢失数据；1 条说明"},
        "headline": {"en": "", "zh": ""},
        "lost": {},
        "issues": [
            {
                "issue": "allocated-before-recording",
                "severity": "note",
                "unit": "records",
                "count": 58,
                "sentence": {
                    "en": "58 blocks were allocated before recording began (normal)",
                    "zh": "58 个内存块在采集开始前已分配（正常）",
                },
                "advice": {
                    "en": "Their releases have no allocation to belong to.",
                    "zh": "这些内存块只有释放记录，没有分配记录。",
                },
                "places": [{"source": "memory_events", "count": 58, "detail": ""}],
            }
        ],
    }

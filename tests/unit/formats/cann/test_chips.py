# SPDX-License-Identifier: Apache-2.0
"""The table of chips: every row has readers for what it names, and the page is made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.formats.cann import chips
from stepscope.formats.cann.chip_reference import page
from stepscope.formats.cann.device import side
from stepscope.formats.cann.device.pmu_sets import FORMULAS
from stepscope.tables.facts import EVIDENCE, evidence_text


def test_reference_page_is_up_to_date():
    assert (Path(__file__).parents[4] / "docs" / "formats" / "chips.md").read_text() == page(), "run `make docs`"


@pytest.mark.parametrize("number", [number for number, chip in chips.CHIPS.items() if chip.readable])
def test_everything_a_chip_names_exists(number: int):
    chip = chips.CHIPS[number]
    assert chip.tasks in side.TASK_READERS or chip.tasks == "stars"
    assert chip.counters in side.COUNTER_READERS or chip.counters == "ffts"
    assert chip.formulas in FORMULAS
    assert set(chip.sure.values()) <= set(EVIDENCE)
    assert {"task times", "task states", "hardware counters", chips.SAMPLED} <= set(chip.sure)


@pytest.mark.parametrize("number", [9, 12, 17, 18, 21, 99])
def test_other_numbers_are_refused_by_name(number: int):
    chip = chips.chip_of(number)
    assert chip is None or not chip.readable
    assert str(number) in chips.chip_name(number)


def test_evidence_is_that_of_the_files_that_are_there():
    assert chips.evidence_of(4, ["hwts.data", "aicore.data"]) == {"task times": "reference", "hardware counters": "reference"}
    assert chips.evidence_of(0, ["ts_track.data"]) == {"task times": "reference", "task states": "reference"}
    assert chips.evidence_of(5, ["stars_soc.data", "hbm.data"]) == {"task times": "bytes", "sampled data": "reference"}
    assert chips.evidence_of(99, ["stars_soc.data"]) == {}


def test_evidence_in_one_line():
    known = {"task times": "bytes", "sampled data": "source", "hardware counters": "bytes"}
    expected = "task times, hardware counters checked on real bytes; sampled data from public source code, not checked"
    assert evidence_text(known) == expected

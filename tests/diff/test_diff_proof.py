# SPDX-License-Identifier: Apache-2.0
"""A bounded form of `make diff-proof`: equal runs are silent, injected changes are named first."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from diff_cases import equal_pairs, injected
from diff_proof import outcome

pytestmark = pytest.mark.slow  # two simulated runs a pair
PAIRS = 24


def test_equal_runs_are_silent():
    assert [pair.name for pair in equal_pairs(PAIRS) if outcome(pair).alarm] == []


def test_an_injected_change_is_named_first():
    missed = [pair.name for pair in injected(PAIRS) if not outcome(pair).named_first]
    assert len(missed) <= 0.05 * PAIRS, missed

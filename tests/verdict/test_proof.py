# SPDX-License-Identifier: Apache-2.0
"""The rules on the whole suite of simulated problems."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from proof import prove

pytestmark = pytest.mark.slow  # more than a hundred simulated runs


def test_problems_are_named_and_their_cost_is_predicted():
    proof = prove()
    assert proof.named + len(proof.missed) + proof.hidden >= 80
    assert proof.clean >= 40
    assert proof.recall >= 0.95, proof.missed
    assert proof.precision >= 0.9, proof.wrong
    assert len(proof.loud) <= 1, proof.loud
    assert proof.calibrated >= 0.8

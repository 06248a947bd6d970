# SPDX-License-Identifier: Apache-2.0
"""Every rule speaks in the example of its page."""

from __future__ import annotations

import pytest
from rule_examples import EXAMPLES, example

from stepscope.verdict import verdict
from stepscope.verdict.catalogue import RULES


def test_every_rule_has_an_example():
    assert set(EXAMPLES) == {rule.name for rule in RULES}


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_the_rule_speaks(rule):
    found = verdict(example(rule)).findings
    assert rule in {one.rule for one in found}, [(one.rule, round(one.share, 3)) for one in found]

# SPDX-License-Identifier: Apache-2.0
"""The language: what is asked for, else what the locale says, else English."""

from __future__ import annotations

import pytest

from stepscope.language import language


@pytest.mark.parametrize(
    ("given", "variables", "expected"),
    [
        pytest.param("zh", {"LANG": "en_US.UTF-8"}, "zh", id="asked-for"),
        pytest.param(None, {"LC_ALL": "zh_CN.UTF-8", "LANG": "en_US.UTF-8"}, "zh", id="the-first-variable-that-is-set"),
        pytest.param(None, {"LC_ALL": "", "LC_MESSAGES": "en_GB", "LANG": "zh_CN"}, "en", id="empty-ones-do-not-count"),
        pytest.param(None, {"LANG": "de_DE.UTF-8"}, "en", id="no-translation"),
    ],
)
def test_language(given, variables, expected, monkeypatch):
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert language(given) == expected

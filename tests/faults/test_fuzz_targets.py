# SPDX-License-Identifier: Apache-2.0
"""The targets of `make fuzz` with a few inputs each, so that they keep working and what is simple is seen at once."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "fuzz"))
from targets import targets

WORDS = [b"1e300", b"-9223372036854775808", b"9" * 30, b"nan", b"\xff\xff\xff\xff", b"\0" * 8, b'"', b"[", b"}", b"", b"\n"]


@pytest.mark.slow  # every reader, several times
@pytest.mark.parametrize("name", targets())
def test_changed_files_give_results_or_a_clear_error(name: str):
    target = targets()[name]
    chance = random.Random(name)
    with target.open() as read:
        for seed in target.seeds()[: 3 if target.slow else None]:
            read(seed)
            for _ in range(1 if target.slow else 3):
                at = chance.randrange(1, len(seed) + 1)
                read(seed[:at] + chance.choice(WORDS) + seed[at + chance.randrange(4) :])

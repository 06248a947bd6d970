"""Shared fixtures: where the real captures are, and small builders of tables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def golden_root() -> Path | None:
    for candidate in (os.environ.get("STEPSCOPE_GOLDEN"), REPOSITORY.parent / "shared" / "golden"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    return None


@pytest.fixture(scope="session")
def golden() -> Path:
    root = golden_root()
    if root is None:
        pytest.skip("no real captures here: set STEPSCOPE_GOLDEN to the folder that holds them")
    return root

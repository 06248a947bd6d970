"""Shared fixtures: where the real captures are, and small builders of tables."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest
from profiler_doubles import NotingTier

# How long an example takes is no finding on a shared machine.
hypothesis.settings.register_profile("no-deadline", deadline=None)
hypothesis.settings.load_profile("no-deadline")

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


@pytest.fixture
def noting_tier(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Calls of the tier that records for every profiler of the test; captures go below tmp_path."""
    from stepscope.collect import active, messages
    from stepscope.collect.tiers import choice as tiers

    calls: list[str] = []
    monkeypatch.setattr(tiers, "choose", lambda settings: NotingTier(calls))
    monkeypatch.setattr(messages, "_said", set())
    monkeypatch.setattr(active, "_running", None)
    for name in ("RANK", "ASCEND_WORK_PATH", "TORCH_NPU_WARNING_DISABLE", "PROFILING_MODE", "STEPSCOPE_SPOOL_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STEPSCOPE_MIN_FREE_BYTES", "0")
    monkeypatch.chdir(tmp_path)
    return calls

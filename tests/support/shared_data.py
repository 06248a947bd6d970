"""Data that tests use and the repository does not hold: real captures, and the documents whose samples are run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

BESIDE = Path(__file__).resolve().parents[3] / "shared"  # beside the repository


class Place(NamedTuple):
    """A folder of such data, and how it is called."""

    name: str
    holds: str

    @property
    def variable(self) -> str:
        return f"STEPSCOPE_{self.name.upper()}"

    def find(self) -> Path | None:
        for candidate in (os.environ.get(self.variable), BESIDE / self.name):
            if candidate and Path(candidate).is_dir():
                return Path(candidate)
        return None

    @property
    def absence(self) -> str:
        """The reason of a skipped test."""
        return f"no {self.holds} here: set {self.variable} to their folder, or put it at ../{BESIDE.name}/{self.name}"

    def folder(self) -> Path:
        """The folder; without it the test that asks is skipped, or fails where everything is to be tested."""
        found = self.find()
        if found is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(self.absence)
        return found


GOLDEN = Place("golden", "real captures")
SEEDS = Place("seeds", "documents with samples")
PLACES = (GOLDEN, SEEDS)

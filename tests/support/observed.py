"""What tests of the native observer share: the observer of this process, a small model, and records as rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from stepscope.collect.tiers.observer import Observer, ObserverOptions, StopReport, load_observer  # noqa: E402
from stepscope.formats.framework.records import read_records  # noqa: E402


def the_observer() -> Observer:
    """The observer, or a skip where nothing can build it; a library that was built and does not work is a failure."""
    found = load_observer()
    if isinstance(found, str):
        if "no C++ compiler" in found:
            pytest.skip(found)
        pytest.fail(found)
    return found


def observed(folder: Path, work: Callable[[], Any], **options: Any) -> tuple[dict[str, pl.DataFrame], StopReport]:
    """Record `work` and read the files back; they must be without a fault."""
    observer = the_observer()
    folder.mkdir(exist_ok=True)
    observer.prepare(folder, ObserverOptions(**options))
    observer.start()
    try:
        work()
    finally:
        report = observer.stop()
    frames, quality = read_records(folder)
    assert quality.height == 0
    frames["op_range"] = frames["op_range"].sort("start", pl.col("end"), descending=[False, True])
    return frames, report


class Training:
    """Training of a small transformer, with nothing random once it is made."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=False)
        self.data = torch.randn(2, 4, 16)
        self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.data).square().mean().backward()
        self.optimizer.step()

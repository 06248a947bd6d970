# SPDX-License-Identifier: Apache-2.0
"""The processes and threads of one timeline: which number each has (docs/formats/outputs.md 3.2, current layout)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from stepscope.formats.ascend.trace.layers import DEVICES, HOST_DEVICE, OS_PIDS, PYTHON, SORTS, Layer


@dataclass(frozen=True)
class Process:
    pid: int
    layer: Layer
    name: str
    label: str


class Processes:
    """Numbers for the layers of one timeline, and what the timeline says about them."""

    def __init__(self, main_pid: int, device_word: str = "NPU"):
        self.main_pid = main_pid
        self.device_word = device_word
        self._known: dict[tuple[str, int, int | None], Process] = {}
        self._taken: set[int] = set()
        self._threads: dict[tuple[int, int], tuple[str, int]] = {}

    def reserve(self, os_pid: int) -> None:
        """Keep private numbers away from a process of the operating system."""
        self._taken.add(os_pid)

    def of(self, layer: Layer, os_pid: int | None, device: int | None, name: str | None = None) -> int:
        """The pid of a layer of one process and device."""
        os_pid = self.main_pid if os_pid is None else os_pid
        key = (layer.name, os_pid, device if layer.on_device else None)
        if key not in self._known:
            pid = os_pid if layer is PYTHON else self._number(layer, os_pid, device)
            self._taken.add(pid)
            self._known[key] = Process(pid, layer, name or layer.name, self._label(layer, device))
        return self._known[key].pid

    def thread(self, pid: int, tid: int, name: str, sort: int | None = None) -> None:
        self._threads.setdefault((pid, tid), (name, tid if sort is None else sort))

    def _number(self, layer: Layer, os_pid: int, device: int | None) -> int:
        bits = (device or 0) if layer.on_device else HOST_DEVICE
        if layer.sort < SORTS and 0 <= bits < DEVICES and 0 <= os_pid < OS_PIDS:
            pid = (os_pid * SORTS + layer.sort) * DEVICES + bits
            if pid not in self._taken:
                return pid
        # Does not fit its bits (docs/formats/outputs.md 3.2): a number that no process of the operating system can have.
        private = OS_PIDS + 1
        while private in self._taken:
            private += 1
        return private

    def _label(self, layer: Layer, device: int | None) -> str:
        if not layer.on_device:
            return "CPU"
        return self.device_word if device is None else f"{self.device_word} {device}"

    def __iter__(self) -> Iterator[Process]:
        return iter(self._known.values())

    def threads(self, pid: int) -> list[tuple[int, str, int]]:
        return [(tid, name, sort) for (owner, tid), (name, sort) in self._threads.items() if owner == pid]


def distinct_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """The distinct rows, in order. Few follow one of their kind that differs: comparing neighbours first saves the hashing."""
    if frame.height < 2 or all(_is_constant(column) for column in frame):
        return frame[:1]
    changed = pl.any_horizontal(pl.all().ne_missing(pl.all().shift(1)))
    return frame.lazy().filter(changed | (pl.int_range(pl.len()) == 0)).unique(maintain_order=True).collect(engine="in-memory")


def _is_constant(column: pl.Series) -> bool:
    nulls = column.null_count()
    return nulls == len(column) or (not nulls and column.dtype.is_integer() and column.min() == column.max())


def placed(
    frame: pl.DataFrame, processes: Processes, layer: Layer, *, os_pid: str = "pid", device: str = "device", name: str | None = None
) -> pl.DataFrame:
    """The frame with `pid` replaced by the number of its layer; `name` may hold {device}."""
    keys = [key for key in (os_pid, device) if key in frame.columns]
    owners = distinct_rows(frame[keys]) if keys else frame.clear()
    places = [(row.get(os_pid), row.get(device)) for row in owners.iter_rows(named=True)] if keys else [(None, None)]
    pids = [processes.of(layer, pid, at, name.format(device=at) if name else None) for pid, at in places]
    if len(pids) < 2:
        return frame.with_columns(pl.lit(pids[0] if pids else None, pl.Int64).alias("pid"))
    found = owners.with_columns(pl.Series("layer pid", pids, dtype=pl.Int64))
    joined = frame.join(found, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return joined.drop("pid", strict=False).rename({"layer pid": "pid"})

# SPDX-License-Identifier: Apache-2.0
"""The parts of a raw `PROF_*` folder: host and devices, each with settings and slices of data (docs/formats/cann.md 1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from stepscope.formats.cann.clock import CounterClock, device_clock, host_clock, mono_ns, sampled_zero_ns
from stepscope.tables import issues, lost

_DEVICE = re.compile(r"device_([0-9]{1,4})")
_SLICE = re.compile(r"(?P<name>.+)\.slice_(?P<number>[0-9]{1,9})")
_HOST_NAME = re.compile(r"(?P<aging>aging|unaging)\.(?P<kind>.+)$")
_OLD_DRIVER = 0x072211  # older drivers wrote no usable flips
_STAMP = re.compile(r"PROF_\d+_(\d{14})")


@dataclass(frozen=True)
class Slices:
    """The files of one kind and one aging class, in the order of their numbers."""

    name: str
    aging: bool
    first: int  # number of the first slice: above 0 when older ones were dropped
    paths: tuple[Path, ...]
    missing: int = 0  # how many numbers between the first and the last slice have no file


@dataclass(frozen=True)
class Part:
    """`host/` or one `device_<id>/`."""

    path: Path
    device: int | None
    info: Mapping[str, Any]
    sample: Mapping[str, Any]
    start: Mapping[str, Any]
    end: Mapping[str, Any]
    clock: CounterClock  # of this part's own counter
    host_counter: CounterClock  # of the host's counter, by the logs of this folder
    sampled_zero_ns: int  # epoch time of microsecond 0 in sampled data
    groups: Mapping[str, tuple[Slices, ...]]
    device_monotonic_zero_ns: int = 0  # epoch time of nanosecond 0 of the device's monotonic clock
    lost: tuple[pl.DataFrame, ...] = ()

    def slices(self, kind: str) -> tuple[Slices, ...]:
        """Slice groups of a kind, such as `compact.task_track` or `stars_soc.data`."""
        return self.groups.get(kind, ())

    def kinds(self) -> dict[str, list[Path]]:
        return {kind: [path for group in groups for path in group.paths] for kind, groups in self.groups.items()}

    @property
    def chip(self) -> int | None:
        """`platform_version`; None when the folder does not say."""
        return _number(self.info.get("platform_version"))

    @property
    def has_old_driver(self) -> bool:
        """Whether the rounds of task numbers are not told apart."""
        driver = self.info.get("drvVersion")
        return isinstance(driver, int) and driver < _OLD_DRIVER

    @property
    def samples_cores(self) -> bool:
        """Whether counters of cores were sampled, not read task by task."""
        return self.setting("ai_core_profiling_mode") == "sample-based"

    @property
    def pid(self) -> int | None:
        number = _number(self.info.get("pid"))
        return number if number is None or abs(number) < 1 << 63 else None  # else damaged

    @property
    def device_info(self) -> Mapping[str, Any]:
        """Facts about the device: core numbers and frequencies."""
        found = self.info.get("DeviceInfo")
        return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}

    def setting(self, *names: str) -> str:
        """The first of several spellings of a switch that is set, as text."""
        return next((str(self.sample[name]) for name in names if self.sample.get(name) not in (None, "")), "")


@dataclass(frozen=True)
class Prof:
    """One raw folder: one recording of one process."""

    path: Path
    host: Part | None
    devices: tuple[Part, ...]
    lost: tuple[pl.DataFrame, ...] = field(default=())

    @property
    def parts(self) -> tuple[Part, ...]:
        return (*((self.host,) if self.host else ()), *self.devices)

    @property
    def chip(self) -> int | None:
        return next((part.chip for part in (*self.devices, *self.parts) if part.chip is not None), None)


def stamp_of(name: str) -> str:
    """Date and time in a folder's name, `yyyymmddHHMMSS`; zeros in one that was renamed."""
    found = _STAMP.match(name)
    return found[1] if found else "0" * 14


def is_raw(path: Path) -> bool:
    """Whether a `PROF_*` folder still holds the bytes that were recorded."""
    return any(True for data in path.glob("*/data") for _ in data.glob("*.slice_*"))


def open_prof(path: Path) -> Prof:
    """List what is in a folder: settings and files; no record is read."""
    host = path / "host"
    named = ((_DEVICE.fullmatch(found.name), found) for found in path.glob("device_*") if found.is_dir())
    devices = sorted((int(name[1]), found) for name, found in named if name)
    parts = tuple(_part(folder, device) for device, folder in devices)
    host_part = _part(host, None) if host.is_dir() else None
    parts = tuple(_with_chip(part, (host_part, *parts)) for part in parts)
    losses = tuple(row for part in (*((host_part,) if host_part else ()), *parts) for row in part.lost)
    return Prof(path, host_part, parts, losses)


def _with_chip(part: Part, others: Iterable[Part | None]) -> Part:
    """A device whose settings are lost is of the chip that the rest of the folder names."""
    if part.chip is not None:
        return part
    known = next((other.chip for other in others if other is not None and other.chip is not None), None)
    return part if known is None else replace(part, info={**part.info, "platform_version": str(known)})


def _part(folder: Path, device: int | None) -> Part:
    tail = "" if device is None else f".{device}"
    losses: list[pl.DataFrame] = []
    info = _json(folder / f"info.json{tail}", losses)
    sample = _json(folder / "sample.json", losses)
    start = _json(folder / f"start_info{tail}", losses)
    end_file = folder / f"end_info{tail}"  # missing when the run was killed
    end = _json(end_file, losses) if end_file.exists() else {}
    host_log = _log(folder / f"host_start.log{tail}", losses)
    host_counter, fault = host_clock(info, start, host_log)
    clock = host_counter
    device_log: dict[str, int] = {}
    if device is not None:
        device_log = _log(folder / f"dev_start.log{tail}", losses)
        clock, fault = device_clock(info, start, host_log, device_log)
    if fault:
        losses.append(lost(issues.INCOMPLETE_CLOCK, folder.name, 1, fault))
    return Part(
        path=folder,
        device=device,
        info=info,
        sample=sample,
        start=start,
        end=end,
        clock=clock,
        host_counter=host_counter,
        sampled_zero_ns=sampled_zero_ns(host_log, start),
        device_monotonic_zero_ns=sampled_zero_ns(host_log, start) - mono_ns(device_log),
        groups=_groups(folder / "data", device, losses),
        lost=tuple(losses),
    )


def _groups(data: Path, device: int | None, losses: list[pl.DataFrame]) -> dict[str, tuple[Slices, ...]]:
    found: dict[tuple[str, bool, str], list[tuple[int, Path]]] = {}
    try:
        paths = list(data.iterdir())
    except OSError as error:
        losses.append(lost(issues.UNREADABLE_FOLDER, f"{data.parent.name}/data", 1, str(error)))
        return {}
    for path in paths:
        named = _SLICE.fullmatch(path.name)
        if named is None or path.is_symlink():
            continue  # .done and .complete marks
        kind, aging = named["name"], False
        if device is None:
            host = _HOST_NAME.match(kind)
            if host:
                kind, aging = host["kind"], host["aging"] == "aging"
        else:
            kind = kind.removesuffix(f".{device}")
        found.setdefault((kind, aging, named["name"]), []).append((int(named["number"]), path))
    groups: dict[str, list[Slices]] = {}
    for (kind, aging, name), numbered in sorted(found.items()):
        numbered.sort()
        first, last = numbered[0][0], numbered[-1][0]
        missing = last - first + 1 - len({number for number, _ in numbered})
        groups.setdefault(kind, []).append(Slices(name, aging, first, tuple(path for _, path in numbered), missing))
    return {kind: tuple(found_groups) for kind, found_groups in groups.items()}


def _json(path: Path, losses: list[pl.DataFrame]) -> Mapping[str, Any]:
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        losses.append(lost(issues.UNREADABLE_SETTINGS, path.name, 1, str(error)))
        return {}
    if isinstance(value, dict):
        return value
    losses.append(lost(issues.UNREADABLE_SETTINGS, path.name, 1, "not a JSON object"))
    return {}


def _log(path: Path, losses: list[pl.DataFrame]) -> dict[str, int]:
    """`key: number` lines; a section head such as `[Host]` has no colon."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError as error:
        losses.append(lost(issues.UNREADABLE_SETTINGS, path.name, 1, str(error)))
        return {}
    pairs = (line.partition(":") for line in lines if ":" in line)
    numbers = ((key.strip(), _number(value.strip())) for key, _, value in pairs)
    # A counter has no reading of more than 64 bits.
    return {key: value for key, value in numbers if value is not None and abs(value) < 1 << 64}


def _number(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None

# SPDX-License-Identifier: Apache-2.0
"""What a Kineto trace says about its run: rank, devices, settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.tables import Facts, Tables

_RANK_IN_NAME = re.compile(r"rank[-_ ]?(\d+)", re.IGNORECASE)
_AMD = re.compile(r"AMD|Radeon|Instinct|MI\d{2,3}", re.IGNORECASE)
_MADE_BY = re.compile(r"([A-Za-z]+)[ :#]*\d+")  # label of a device: MTIA 17
# Accelerators by the beginning of their categories.
_ACCELERATORS = ("xpu", "mtia", "hpu", "mlu", "gcu", "privateuse1")
# What torch.profiler calls the activity of a kind of device.
_ACTIVITIES = {"cuda": "CUDA", "rocm": "CUDA", "cpu": "CUDA"}
# The log lines and the device list are long and stored elsewhere.
_LEFT_OUT = ("INFO", "deviceProperties", "traceEvents")


def facts_of(
    path: Path, header: Mapping[str, Any], tables: Tables, session: tuple[int, int] | None, words: frozenset[str] = frozenset()
) -> Facts:
    kind = _device_kind(header, tables, words)
    metadata = {key: value for key, value in header.items() if key not in _LEFT_OUT}
    return Facts(
        source="kineto",
        device_kind=kind,
        rank=_rank(path, header),
        host_name=header["host_name"] if isinstance(header.get("host_name"), str) else "",
        device_ids=tuple(sorted(tables["kernels"]["device"].drop_nulls().unique().to_list())),
        device_names=_device_names(header),
        device_properties={str(device["id"]): device for device in _devices(header)},
        activities=tuple(_activities(kind, tables)),
        record_shapes=_switch(header, "record_shapes", tables["ops"]["shapes"]),
        profile_memory=_switch(header, "profile_memory", tables["memory_events"]["time_ns"]),
        with_stack=_switch(header, "with_stack", tables["ops"]["stack"]) or tables["python_calls"].height > 0,
        with_flops=_switch(header, "with_flops", tables["ops"]["flops"]),
        with_modules=_switch(header, "with_modules", tables["ops"]["modules"]),
        session_start_ns=session[0] if session else None,
        session_end_ns=session[1] if session else None,
        metadata=metadata,
    )


def _rank(path: Path, header: Mapping[str, Any]) -> int:
    distributed = header.get("distributedInfo")
    if isinstance(distributed, dict) and isinstance(distributed.get("rank"), int):
        return int(distributed["rank"])
    found = _RANK_IN_NAME.search(path.name)
    return int(found.group(1)) if found else -1


def _devices(header: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = header.get("deviceProperties")
    return [device for device in listed if isinstance(device, dict) and "id" in device] if isinstance(listed, list) else []


def _device_names(header: Mapping[str, Any]) -> dict[str, str]:
    return {str(device["id"]): str(device.get("name", "")) for device in _devices(header)}


def _device_kind(header: Mapping[str, Any], tables: Tables, words: frozenset[str]) -> str:
    """Kind of device; `words` are the labels of processes and the categories of events."""
    names = _device_names(header).values()
    calls = tables["api_calls"]["name"].unique().cast(pl.String)
    if any(_AMD.search(name) for name in names) or calls.str.starts_with("hip").any():
        return "rocm"
    makers = {match[1].lower() for match in map(_MADE_BY.fullmatch, words) if match} - {"cpu", "gpu"}
    makers |= {maker for maker in _ACCELERATORS for word in words if word.lower().startswith(f"{maker}_")}
    if makers:
        return min(makers)
    on_device = tables["kernels"].height > 0 or tables["memory_events"]["device"].count() > 0
    return "cuda" if names or on_device else "cpu"


def _activities(kind: str, tables: Tables) -> list[str]:
    found = ["CPU"] if tables["ops"].height else []
    return [*found, *([_ACTIVITIES.get(kind, kind.upper())] if tables["kernels"].height else [])]


def _switch(header: Mapping[str, Any], key: str, column: pl.Series) -> bool:
    """A setting as the header has it (0 or 1), else whether its data are there."""
    value = header.get(key)
    return bool(value) if isinstance(value, int) else column.count() > 0

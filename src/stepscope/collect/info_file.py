# SPDX-License-Identifier: Apache-2.0
"""profiler_info*.json and profiler_metadata.json of a capture (docs/formats/framework.md 8, 9)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepscope import __version__
from stepscope.collect import metadata, paths
from stepscope.collect.clocks import Moment
from stepscope.collect.settings import Settings


def info(settings: Settings, began: Moment | None, ended: Moment, collector: Mapping[str, Any]) -> dict[str, Any]:
    """The content of profiler_info.json; both ends on the clock of the records (docs/formats/framework.md 2.3)."""
    began = began or ended
    switches = settings.switches
    content: dict[str, Any] = {
        "config": {
            "common_config": {
                "activities": [f"ProfilerActivity.{name}" for name in settings.activities],
                "schedule": None if settings.schedule is None else dict(settings.schedule),
                "record_shapes": switches.record_shapes,
                "profile_memory": switches.profile_memory,
                "with_stack": switches.with_stack,
                "with_flops": switches.with_flops,
                "with_modules": switches.with_modules,
            },
            "experimental_config": dict(settings.experimental),
        },
        "start_info": {
            "syscnt_enable": False,
            "freq": 100,
            "start_cnt": 0,
            "start_monotonic": began.raw_ns,
            "unix_ns": began.unix_ns,
            "raw": began.raw_ns,
        },
        "end_info": {
            "collectionTimeEnd": ended.unix_ns,
            "MonotonicTimeEnd": ended.raw_ns,
            "clock": "CLOCK_MONOTONIC_RAW",
        },
        "torch_npu_version": "",
        "cann_version": "not known",
        "collector": {"name": "stepscope", "version": __version__, **collector},
    }
    number = metadata.rank()
    if number is not None:
        content["rank_id"] = number
    return content


def write_info(capture: Path, content: Mapping[str, Any]) -> Path:
    """Write one file, named after the rank, and remove an earlier one under another name."""
    number = content.get("rank_id")
    path = capture / ("profiler_info.json" if number is None else f"profiler_info_{number}.json")
    paths.write_file(path, json.dumps(content, indent=4, ensure_ascii=False).encode())
    for other in capture.glob("profiler_info*.json"):
        if other != path:
            other.unlink()
    return path


def write_metadata(capture: Path, user: Mapping[str, Any], trace_id: str) -> None:
    groups = metadata.process_groups()
    content = {
        **user,
        "ENV_VARIABLES": metadata.environment(),
        **({"parallel_group_info": groups} if groups else {}),
        "trace_id": trace_id,
    }
    paths.write_file(capture / "profiler_metadata.json", json.dumps(content, ensure_ascii=False).encode())

# SPDX-License-Identifier: Apache-2.0
"""What a capture says about itself: profiler_info*.json and profiler_metadata.json, in every form seen.

A value of the wrong type counts as missing; a file that cannot be read is a row of `quality`
(docs/formats/framework.md 8, 9; docs/formats/outputs.md 14).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from stepscope.formats.mindspore import settings as mindspore
from stepscope.tables import ALL_TABLES, Facts, issues, lost

_INFO = re.compile(r"profiler_info(?:_(\d+))?\.json")
_METADATA = "profiler_metadata.json"
_EXPORTS = ("text", "db")
_ACTIVITY_NAMES = {"GPU": "CUDA"}
_DEVICE_KINDS = {"NPU": "npu", "CUDA": "cuda", "CPU": "cpu"}

Json = Mapping[str, Any]
Notes = list[pl.DataFrame]


def read_capture_facts(capture: Path, *, raw: bool = False) -> tuple[Facts, pl.DataFrame]:
    """The facts of a capture folder, and what was wrong with their files as rows of `quality`.

    Args:
        capture: the folder with profiler_info*.json.
        raw: raw records are what will be read, so an activity without its folder is dropped.
    """
    notes: Notes = [ALL_TABLES["quality"].empty()]
    path, rank = _info_file(capture, notes)
    info = _load(path, notes) if path else {}
    torch_sections = _section(info, "config", "common_config"), _section(info, "config", "experimental_config")
    common, experimental = mindspore.sections(info) or torch_sections
    activities = _activities(common.get("activities"))
    if raw:
        activities = _recorded(capture, activities, notes)
    if path:
        notes += _notes_of_collector(info, path.name)
    metadata = _load(capture / _METADATA, notes) if (capture / _METADATA).exists() else {}
    facts = Facts(
        framework="mindspore" if capture.name.endswith("_ascend_ms") or "ms_version" in info else "pytorch",
        device_kind=_device_kind(info, activities),
        modelled=_texts(_section(info, "collector").get("modelled") or metadata.get("modelled")),
        rank=_rank(info.get("rank_id", mindspore.rank(info)), rank),
        activities=activities,
        export_type=_exports(experimental.get("_export_type"), path, notes),
        schedule=_schedule(common.get("schedule")),
        metadata=metadata,
        profiler_info=info,
        torch_npu_version=_text(info.get("torch_npu_version")),
        cann_version=_text(info.get("cann_version")),
        **_switches(common, experimental),
        **_session(info),
    )
    return facts, pl.concat(notes)


def _info_file(capture: Path, notes: Notes) -> tuple[Path | None, int]:
    """The file to read and the rank in its name (-1 for none); of several, one with a rank."""
    listed = sorted(capture.iterdir()) if capture.is_dir() else []
    found = [(path, int(match[1] or -1)) for path in listed if (match := _INFO.fullmatch(path.name)) and path.is_file()]
    if not found:
        notes.append(lost(issues.MISSING_SETTINGS, capture.name, 1))
        return None, -1
    found.sort(key=lambda item: (item[1] < 0, item[1]))
    if len(found) > 1:
        notes.append(lost(issues.FURTHER_FILES, capture.name, len(found) - 1, f"{found[0][0].name} was read"))
    return found[0]


def _load(path: Path, notes: Notes) -> Json:
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as fault:
        notes.append(lost(issues.UNREADABLE_SETTINGS, path.name, 1, str(fault)))
        return {}
    if isinstance(value, dict):
        return value
    notes.append(lost(issues.UNREADABLE_SETTINGS, path.name, 1, f"an object was expected, not {type(value).__name__}"))
    return {}


def _notes_of_collector(info: Json, source: str) -> Notes:
    """What our own collector could not keep, and whether it ended before it was stopped."""
    notes = [
        lost(issues.DROPPED_WHILE_RECORDING, source, count, what)
        for what, value in _section(info, "dropped").items()
        if (count := _integer(value))
    ]
    collector = _section(info, "collector")
    limit = _text(collector.get("limit"))
    # Written when the recording starts, and again when it has ended.
    unfinished = lost(issues.RECORDING_UNFINISHED, source, int(collector.get("complete") is False))
    return [*notes, unfinished, lost(issues.RECORDING_ENDED_EARLY, source, int(bool(limit)), limit)]


def _section(parent: Json, *keys: str) -> Json:
    value: Any = parent
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    """A list of words, or a single word that stands for a list."""
    if isinstance(value, str):
        return (value,)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _rank(value: object, named: int) -> int:
    """The rank as a number, from the file (a string when it came from the environment) or else from its name; -1 for none."""
    number = _integer(value)
    if number is not None:
        return number
    text = _text(value).strip()
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else named


def _activities(value: object) -> tuple[str, ...]:
    names = (item.rpartition(".")[2].upper() for item in _texts(value))
    return tuple(dict.fromkeys(_ACTIVITY_NAMES.get(name, name) for name in names))


def _recorded(capture: Path, activities: tuple[str, ...], notes: Notes) -> tuple[str, ...]:
    """The activities that left a folder behind."""
    there: dict[str, Callable[[], bool]] = {
        "CPU": lambda: (capture / "FRAMEWORK").is_dir(),
        "NPU": lambda: any(path.is_dir() for path in capture.glob("PROF_*")),
    }
    kept = []
    for name in activities:
        if name in there and not there[name]():
            folder = "FRAMEWORK" if name == "CPU" else "PROF_*"
            notes.append(lost(issues.ACTIVITY_WITHOUT_DATA, capture.name, 1, f"{name} was on, but there is no {folder} folder"))
        else:
            kept.append(name)
    return tuple(kept)


def _device_kind(info: Json, activities: tuple[str, ...]) -> str:
    collector = _section(info, "collector")
    device = _text(collector.get("device") or collector.get("backend"))
    if device:
        return "npu" if device == "npu_sim" else device
    return next((kind for activity, kind in _DEVICE_KINDS.items() if activity in activities), "")


def _exports(value: object, path: Path | None, notes: Notes) -> tuple[str, ...]:
    words = _texts(value)
    known = tuple(word for word in _EXPORTS if word in words)
    if known:
        return known
    if path and value is not None:
        notes.append(lost(issues.UNKNOWN_SETTING, path.name, 1, f"{value!r}"))
    return ("text",)


def _schedule(value: object) -> Json | None:
    """Attributes of the schedule by their public names: old files have them with an underscore in front."""
    return {key.lstrip("_"): item for key, item in value.items()} if isinstance(value, dict) else None


def _switches(common: Json, experimental: Json) -> dict[str, Any]:
    flags = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
    threshold = experimental.get("_gc_detect_threshold")
    return {
        **{flag: common.get(flag) is True for flag in flags},
        "level": _text(experimental.get("_profiler_level")).rpartition(".")[2],
        "aic_metrics": _text(experimental.get("_aic_metrics")),
        "l2_cache": experimental.get("_l2_cache") is True,
        # Old files know only `_msprof_tx`, new ones have both names for the same thing.
        "mstx": experimental.get("_mstx") is True or experimental.get("_msprof_tx") is True,
        "op_attr": experimental.get("_op_attr") is True,
        "sys_io": experimental.get("_sys_io") is True,
        "sys_interconnection": experimental.get("_sys_interconnection") is True,
        "host_sys": _texts(experimental.get("_host_sys")),
        "gc_threshold": float(threshold) if isinstance(threshold, (int, float)) and not isinstance(threshold, bool) else None,
        "data_simplification": experimental.get("_data_simplification") is True,
    }


def _session(info: Json) -> dict[str, Any]:
    """Start and end of the recording on the epoch clock, where both clocks were noted."""
    start, end = _section(info, "start_info"), _section(info, "end_info")
    unix, monotonic = _integer(end.get("collectionTimeEnd")), _integer(end.get("MonotonicTimeEnd"))
    begin, begin_monotonic = _integer(start.get("unix_ns")), _integer(start.get("start_monotonic"))
    if begin is None and unix is not None and monotonic is not None and begin_monotonic is not None:
        begin = begin_monotonic + unix - monotonic
    return {"session_start_ns": begin, "session_end_ns": unix}

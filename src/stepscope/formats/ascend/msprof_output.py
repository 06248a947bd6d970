# SPDX-License-Identifier: Apache-2.0
"""What msprof has parsed in a PROF_* folder: mindstudio_profiler_output/ and analyze/, with the facts of the session."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.ascend import old_layout
from stepscope.formats.ascend.parsed import ParsedFiles, read_parsed
from stepscope.tables import Facts, Tables, issues, lost

OUTPUT = "mindstudio_profiler_output"
ANALYZE = "analyze"
LOG = "mindstudio_profiler_log"
_COMMUNICATION, _LINKS = "communication.json", "communication_matrix.json"

# docs/formats/enums.md 9; the name before `|` is the present one.
_CSV = (
    "op_summary", "task_time", "npu_mem", "memory_record|ge_memory_record", "operator_memory|ge_operator_memory", "npu_module_mem",
    "l2_cache", "soc_pmu", "aicpu", "nic", "roce", "pcie", "hccs", "op_statistic", "api_statistic",
)  # fmt: skip
_STAMP_DIGITS = 14  # of a file name with the time of the export; shorter numbers are device and model

# docs/formats/enums.md 1: chip by `platform_version` of info.json
_CHIPS = {
    "0": "Ascend310", "1": "Ascend910A", "4": "Ascend310P", "5": "Ascend910B", "7": "Ascend310B", "15": "Ascend950",
}  # fmt: skip


def read(prof: Path) -> Tables:
    """Tables of a parsed PROF_* folder; `meta` holds what the folder says about session, host and devices.

    Raises:
        CaptureError: the folder holds no parsed file with a usable row.
    """
    quality: list[pl.DataFrame] = []
    facts = read_output_facts(prof, quality=quality)
    files = find_files(prof, quality=quality, device=facts.device_ids[0] if len(facts.device_ids) == 1 else None)
    if not files.any():
        raise CaptureError(
            "the PROF folder has no parsed files",
            where=str(prof / OUTPUT),
            cause="msprof has not exported this capture",
            fix=f"msprof --export=on --output={prof}",
        )
    parsed = read_parsed(files)
    if not (prof / OUTPUT).is_dir():
        parsed = old_layout.completed(parsed, prof, quality)
    facts = facts.replace(device_ids=tuple(sorted({*facts.device_ids, *parsed.device_ids})), generation=parsed.generation)
    return parsed.tables.replace(meta=facts.table()).with_quality(*quality)


def read_folder(folder: Path) -> Tables:
    """Tables of parsed files that lie without their PROF_* folder.

    Raises:
        CaptureError: not one of them holds a usable row.
    """
    quality: list[pl.DataFrame] = []
    files = _of_names(_listing(folder), quality=quality)
    parsed = read_parsed(replace(files, communication=_existing(folder / _COMMUNICATION), extremes=_existing(folder / _LINKS)))
    facts = Facts(source="msprof", device_kind="npu", device_ids=parsed.device_ids, generation=parsed.generation)
    return parsed.tables.replace(meta=facts.table()).with_quality(*quality)


def find_files(prof: Path, *, quality: list[pl.DataFrame], device: int | None = None) -> ParsedFiles:
    """The parsed files of the latest export."""
    # Until 2023 every device had folders of its own, and each iteration of a graph files of its own.
    names = _listing(prof / OUTPUT) or [
        path for word in ("timeline", "summary") for folder in sorted(prof.glob(f"device_*/{word}")) for path in _listing(folder)
    ]
    analyze = prof / ANALYZE
    return replace(
        _of_names(names, quality=quality),
        communication=_existing(analyze / _COMMUNICATION),
        matrix=_existing(analyze / _LINKS),
        device=device,
    )


def _of_names(paths: list[Path], *, quality: list[pl.DataFrame]) -> ParsedFiles:
    """Timeline and csv files of the latest export among these."""
    csv = {}
    for kinds in _CSV:
        found: tuple[Path, ...] = ()
        for name in kinds.split("|"):
            found = found or _latest(paths, name, "csv", quality)
        csv[kinds.split("|")[0]] = found
    timeline = _latest(paths, "msprof", "json", quality) or _latest(paths, "msprof", "json.gz", quality)
    return ParsedFiles(timeline=timeline, csv=csv)


def read_output_facts(prof: Path, *, quality: list[pl.DataFrame]) -> Facts:
    """Session times, host and devices from the small files beside the data (docs/formats/cann.md 1)."""
    host, start, end = (_host_object(prof, name, quality) for name in ("info.json", "start_info", "end_info"))
    quality.append(lost(issues.RECORDING_UNFINISHED, prof.name, int(bool(start) and not end), "no end_info in host"))
    devices = sorted(int(path.name[7:]) for path in prof.glob("device_*") if path.name[7:].isdecimal())
    chips = {}
    for device in devices:
        version = _object(prof / f"device_{device}" / f"info.json.{device}", quality).get("platform_version")
        chips[str(device)] = _CHIPS.get(str(version), "")
    return Facts(
        source="msprof",
        device_kind="npu",
        host_name=str(host.get("hostname") or ""),
        host_uid=str(host.get("hostUid") or ""),
        cann_version=str(host.get("cannVersion") or ""),
        device_ids=tuple(devices),
        device_names={device: chip for device, chip in chips.items() if chip},
        session_start_ns=_ns(start.get("collectionTimeBegin")),
        session_end_ns=_ns(end.get("collectionTimeEnd")),
    )


def _listing(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink()) if folder.is_dir() else []


def _existing(path: Path) -> Path | None:
    return path if path.is_file() and not path.is_symlink() else None


def _latest(paths: Iterable[Path], name: str, suffix: str, quality: list[pl.DataFrame]) -> tuple[Path, ...]:
    """Files `{name}_{stamp}` and `{name}_slice_{i}_{stamp}` of the newest stamp, slices in numeric order.

    A second export of the same data lies beside the first one; reading both would count everything twice.
    """
    pattern = re.compile(rf"{name}_(?:slice_(\d{{1,20}})_?)?(\d{{0,20}}).*\.{re.escape(suffix)}")
    found = [
        (match[2], int(match[1] or 0), path) for path in paths if (match := pattern.fullmatch(path.name)) and (match[1] or match[2])
    ]
    stamps = [stamp for stamp, _, _ in found if len(stamp) >= _STAMP_DIGITS]
    newest = [item for item in found if not stamps or item[0] == max(stamps)]
    quality.append(lost(issues.FURTHER_FILES, f"{name}.{suffix}", len(found) - len(newest), "the newest was read"))
    return tuple(path for _, _, path in sorted(newest, key=lambda item: (item[1], item[2].name)))


def _object(path: Path, quality: list[pl.DataFrame]) -> dict[str, Any]:
    """A small JSON object; empty when the file is absent or damaged (a killed run has no end_info)."""
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, orjson.JSONDecodeError) as error:
        quality.append(lost(issues.UNREADABLE_SETTINGS, path.name, 1, str(error)))
        return {}
    return content if isinstance(content, dict) else {}


def _host_object(prof: Path, name: str, quality: list[pl.DataFrame]) -> dict[str, Any]:
    """A file of the host's folder; where there is none, that of the first device."""
    found = [prof / "host" / name] if (prof / "host").is_dir() else sorted(prof.glob(f"device_*/{name}.*[0-9]"))
    return _object(found[0], quality) if found else {}


def _ns(microseconds: Any) -> int | None:
    """Nanoseconds of decimal microseconds; they are text in these files."""
    match = re.fullmatch(r"\s*(\d+)(?:\.(\d*))?\s*", str(microseconds))
    return int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0")[:3]) if match else None

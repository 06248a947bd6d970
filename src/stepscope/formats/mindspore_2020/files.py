# SPDX-License-Identifier: Apache-2.0
"""Which files of a folder are records of MindSpore 2020 (docs/formats/cann.md 6.11)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_RECORDS = re.compile(
    r"(?P<kind>hwts\.log\.data|aicore\.data|ts_track\.data|training_trace)\.[0-9]{1,4}\.dev\.(?P<tag>.+?)"
    r"\.(?P<device>[0-9]{1,4})\.(?:slice_)?(?P<number>[0-9]{1,9})"
)
_TEXTS = re.compile(
    r"(?P<kind>Framework\.host\.vm\.[a-z_]+|DATA_PREPROCESS\.dev\.[A-Z]+)\.(?P<device>[0-9]{1,4})\.(?:slice_)?(?P<number>[0-9]{1,9})"
)

Found = dict[str, list[tuple[int, Path]]]  # kind -> numbered files


def by_device(folder: Path) -> dict[int, Found]:
    """Files of each device by kind, in the order of their numbers."""
    found: dict[int, Found] = {}
    for path in _listing(folder):
        named = _RECORDS.fullmatch(path.name) or _TEXTS.fullmatch(path.name)
        if named and not path.is_symlink():
            found.setdefault(int(named["device"]), {}).setdefault(named["kind"], []).append((int(named["number"]), path))
    return {device: {kind: sorted(paths) for kind, paths in kinds.items()} for device, kinds in sorted(found.items())}


def settings_of(folder: Path, device: int) -> list[Path]:
    """Settings files that may lie beside the records."""
    names = (f"info.json.{device}", "sample.json", f"host_start.log.{device}")
    return [path for name in names if (path := folder / name).is_file()]


def is_folder_of_2020(folder: Path) -> bool:
    """Whether a folder has any such file; names decide."""
    return folder.is_dir() and any(_RECORDS.fullmatch(path.name) or _TEXTS.fullmatch(path.name) for path in _listing(folder))


def _listing(folder: Path) -> Iterator[Path]:
    """The folder itself and its folder `data`: both hold records."""
    for place in (folder, folder / "data"):
        try:
            yield from sorted(place.iterdir())
        except OSError:
            continue

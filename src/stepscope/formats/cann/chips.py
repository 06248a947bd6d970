# SPDX-License-Identifier: Apache-2.0
"""Which raw folders can be read: by chip, and by what is left in them (docs/formats/cann.md 1.5, 8)."""

from __future__ import annotations

from pathlib import Path

from stepscope.formats.cann.folder import Prof, is_raw, open_prof
from stepscope.formats.cann.layouts import API_EVENT, STARS, TASK_TRACK, TASK_TRACK_V2

# `platform_version` of info.json -> name of the chip.
CHIPS = {
    0: "Ascend310", 1: "Ascend910A", 2: "Ascend310 family", 3: "Ascend310 family", 4: "Ascend310P", 5: "Ascend910B",
    7: "Ascend310B", 8: "Ascend310B", 9: "Ascend nano", 11: "Ascend310B", 15: "Ascend950", 16: "Ascend950",
}  # fmt: skip
READABLE = (5, 7, 8, 11)  # chips with 64-byte STARS records


def obstacle(prof: Path) -> str:
    """Why the device records of a folder cannot be joined with the host's; empty when they can."""
    return obstacle_of(open_prof(prof)) if is_raw(prof) else "no raw records are there"


def obstacle_of(prof: Prof) -> str:
    if prof.chip is not None and prof.chip not in READABLE:
        return f"not yet readable: chip {chip_name(prof.chip)}"
    if not any(part.slices(STARS.file) for part in prof.devices):
        return "no device task records (stars_soc) are there"
    if prof.host is None or not any(prof.host.slices(layout.file) for layout in (API_EVENT, TASK_TRACK, TASK_TRACK_V2)):
        return "no host records (api_event, task_track) are there"
    return ""


def chip_name(chip: int) -> str:
    return f"{CHIPS[chip]} (platform_version {chip})" if chip in CHIPS else f"of platform_version {chip}"

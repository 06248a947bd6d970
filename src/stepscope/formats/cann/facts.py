# SPDX-License-Identifier: Apache-2.0
"""What a raw folder says about its session: host, devices, switches, times (docs/formats/cann.md 1.1 to 1.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from stepscope.formats.cann.chips import CHIPS, evidence_of
from stepscope.formats.cann.folder import Part, Prof
from stepscope.tables import Facts
from stepscope.tables.facts import EVIDENCE

_LEVEL = re.compile(r"(?:level|l)_?([0-3])", re.IGNORECASE)


def read_prof_facts(prof: Prof) -> Facts:
    """Facts of a folder; what it does not say keeps its default."""
    first = prof.host or next(iter(prof.devices), None)
    if first is None:
        return Facts(source="raw PROF", device_kind="npu")
    settings = next(iter(prof.devices), first)
    return Facts(
        source="raw PROF",
        device_kind="npu",
        generation="G3",
        rank=_rank(prof.parts),
        process_name=str(first.info.get("pid_name") or ""),
        host_name=str(first.info.get("hostname") or ""),
        host_uid=str(first.info.get("hostUid", "")),
        cann_version=str(first.info.get("cannVersion") or ""),
        device_ids=tuple(part.device for part in prof.devices if part.device is not None),
        device_names={str(part.device): name for part in prof.devices if (name := _name(part))},
        device_properties={str(part.device): known for part in prof.devices if (known := _properties(part))},
        platform=prof.chip,
        evidence=_evidence(prof.devices),
        level=_level(settings.setting("prof_level", "profLevel")),
        aic_metrics=settings.setting("ai_core_metrics"),
        session_start_ns=_ns(first.start, "collectionTimeBegin"),
        session_end_ns=_ns(first.end, "collectionTimeEnd"),
    )


def _evidence(devices: Iterable[Part]) -> dict[str, str]:
    """How sure the reader is of each kind of record; of devices of several chips the one that it is least sure of counts."""
    order = list(EVIDENCE)
    found: dict[str, str] = {}
    for part in devices:
        for kind, mark in evidence_of(part.chip, part.groups).items():
            found[kind] = max(found.get(kind, mark), mark, key=order.index)
    return found


def _name(part: Part) -> str:
    """What the device is called; a simulated one has a name of its own."""
    name = part.device_info.get("name")
    return name if isinstance(name, str) and name else getattr(CHIPS.get(-1 if part.chip is None else part.chip), "name", "")


def _properties(part: Part) -> dict[str, Any]:
    """Cores and clock of the device as its driver gave them."""
    stated = {name: part.device_info.get(name) for name in ("ai_core_num", "aiv_num", "aic_frequency")}
    numbers = {name: int(str(value)) for name, value in stated.items() if re.fullmatch(r"[0-9]{1,9}", str(value))}
    counter = {"counter_mhz": part.clock.mhz} if part.clock.mhz else {}
    return {"id": part.device, "name": _name(part), **numbers, **counter} if numbers else {}


def _rank(parts: tuple[Part, ...]) -> int:
    for part in parts:
        rank = part.info.get("rank_id")
        if isinstance(rank, (int, str)) and re.fullmatch("[0-9]{1,9}", str(rank)):
            return int(rank)
    return -1


def _level(text: str) -> str:
    found = _LEVEL.fullmatch(text.strip())
    return f"Level{found[1]}" if found else ""


def _ns(times: Mapping[str, Any], name: str) -> int | None:
    text = str(times.get(name) or "")
    # 16 digits of microseconds are some centuries; more are damage, and do not fit 64 bits.
    return int(text) * 1000 if text.isdecimal() and text.isascii() and len(text) <= 16 and int(text) * 1000 < 1 << 63 else None

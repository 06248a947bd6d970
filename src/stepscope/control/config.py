# SPDX-License-Identifier: Apache-2.0
"""profiler_config.json: what a running job is asked to record (docs/formats/profiler-api.md 17.6)."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepscope.errors import CaptureError

CONFIG_FILE = "profiler_config.json"
LARGEST = 1 << 20
ACTIVITIES = ("CPU", "NPU", "CUDA")
SWITCHES = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
NEVER, NEXT_STEP = 0, -1

TEMPLATE: dict[str, Any] = {
    "activities": ["CPU", "NPU"],
    "prof_dir": "./",
    "analyse": False,
    "async_mode": False,
    **dict.fromkeys(SWITCHES, False),
    "active": 1,
    "warmup": 0,
    "start_step": NEVER,
    "is_rank": False,
    "rank_list": [],
    "experimental_config": {
        "profiler_level": "Level0",
        "aic_metrics": "AiCoreNone",
        "l2_cache": False,
        "op_attr": False,
        "gc_detect_threshold": None,
        "data_simplification": True,
        "record_op_args": False,
        "export_type": ["text"],
        "msprof_tx": False,
        "mstx": False,
        "host_sys": [],
        "mstx_domain_include": [],
        "mstx_domain_exclude": [],
        "sys_io": False,
        "sys_interconnection": False,
    },
}
# Our own keys: the id by which answers are matched to a request; whether to end the running capture.
REQUEST_ID, STOP = "request_id", "stop"
KEYS = (*TEMPLATE, "metadata", REQUEST_ID, STOP)


@dataclass(frozen=True)
class CaptureRequest:
    """A request for one capture.

    `activities` is None for everything the machine has, `ranks` is None for all ranks. `agreed`: the ranks have chosen
    `start_step` themselves, and one that has passed it begins at once. `refusal` says why it must not be followed.
    `notes` lists invalid values of the file and what is used instead.
    """

    start_step: int = NEVER
    active: int = 1
    warmup: int = 0
    activities: tuple[str, ...] | None = None
    prof_dir: str = "./"
    analyse: bool = False
    async_mode: bool = False
    switches: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[int, ...] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    experimental: Mapping[str, Any] = field(default_factory=dict)
    request_id: str | None = None
    stop: bool = False
    agreed: bool = False
    refusal: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        return self.warmup + self.active

    def wants(self, rank: int) -> bool:
        return self.ranks is None or rank in self.ranks


def template() -> bytes:
    """The file that is created if missing; it requests no capture."""
    return to_json(TEMPLATE)


def to_json(config: Mapping[str, Any]) -> bytes:
    return (json.dumps(config, indent=4, ensure_ascii=False) + "\n").encode()


def parse(content: bytes, name: str = CONFIG_FILE, *, every_rank: bool = False) -> CaptureRequest:
    """The request in a file; invalid values are noted and replaced by their defaults.

    Args:
        content: the file's bytes.
        name: what messages call the file.
        every_rank: is_rank and rank_list have no effect.

    Raises:
        CaptureError: the content is not a JSON object.
    """
    data = _load(content, name)
    notes: list[str] = []
    for key in data:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            notes.append(f"{key} is not a key of {CONFIG_FILE}" + (f"; did you mean {near[0]}?" if near else ""))
    values = _Values(data, notes)
    chosen = values.flag("is_rank")
    if chosen and every_rank:
        notes.append(f"is_rank and rank_list of {name} have no effect: every rank that calls dp.start records")
    ranks = values.ranks() if chosen and not every_rank else None
    asynchronous = values.flag("async_mode")
    analyse = values.flag("analyse")
    if analyse and ranks is not None and not asynchronous:
        notes.append("analyse has no effect with is_rank unless async_mode is true; run `stepscope analyse` afterwards")
        analyse = False
    return CaptureRequest(
        start_step=values.number("start_step", NEXT_STEP),
        active=values.number("active", 1),
        warmup=values.number("warmup", 0),
        activities=values.activities(),
        prof_dir=values.text("prof_dir"),
        analyse=analyse,
        async_mode=asynchronous,
        switches={name: values.flag(name) for name in SWITCHES},
        ranks=ranks,
        metadata=values.mapping("metadata"),
        experimental=values.mapping("experimental_config"),
        request_id=str(data[REQUEST_ID]) if data.get(REQUEST_ID) else None,
        stop=data.get(STOP) is True,
        notes=tuple(notes),
    )


def _load(content: bytes, name: str) -> dict[str, Any]:
    if len(content) > LARGEST:
        raise CaptureError(f"{name} has {len(content)} bytes", cause=f"the limit is {LARGEST}", fix="shorten it")
    if not content.strip():
        fix = "write the whole file, or delete it and restart for a new template" if name == CONFIG_FILE else "write the whole file"
        raise CaptureError(f"{name} is empty", fix=fix)
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as problem:
        fix = "correct it; it is read again" if name == CONFIG_FILE else "correct it"
        raise CaptureError(f"{name} is not valid JSON", cause=str(problem), fix=fix) from problem
    if not isinstance(data, dict):
        raise CaptureError(f"{name} is not a JSON object", cause=f"it is a {type(data).__name__}", fix="begin with {")
    return data


class _Values:
    """Values of one file; an invalid one gives a note and the template's value."""

    def __init__(self, data: Mapping[str, Any], notes: list[str]):
        self._data, self._notes = data, notes

    def flag(self, name: str) -> bool:
        value = self._data.get(name, TEMPLATE[name])
        return value if isinstance(value, bool) else bool(self._default(name, "true or false"))

    def number(self, name: str, least: int) -> int:
        value = self._data.get(name, TEMPLATE[name])
        good = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return int(value if good else self._default(name, f"a whole number from {least}"))

    def text(self, name: str) -> str:
        value = self._data.get(name, TEMPLATE[name])
        return value if isinstance(value, str) and value else str(self._default(name, "a non-empty string"))

    def mapping(self, name: str) -> dict[str, Any]:
        value = self._data.get(name, {})
        if isinstance(value, dict):
            return value
        self._notes.append(f"{name}={value!r} is not a JSON object; it is ignored")
        return {}

    def activities(self) -> tuple[str, ...] | None:
        """None for the default, so that nobody is warned about a device that was not requested."""
        value = self._data.get("activities", TEMPLATE["activities"])
        if value == TEMPLATE["activities"] or value == []:
            return None
        if not isinstance(value, list):
            self._default("activities", "a list")
            return None
        named = [str(item).upper() for item in value]
        for item in named:
            if item not in ACTIVITIES:
                self._notes.append(f"activities: {item} is not one of {', '.join(ACTIVITIES)}; it is ignored")
        return tuple(dict.fromkeys(item for item in named if item in ACTIVITIES)) or None

    def ranks(self) -> tuple[int, ...]:
        value = self._data.get("rank_list", [])
        if not isinstance(value, list):
            self._notes.append(f"rank_list={value!r} is not a list; no rank records")
            return ()
        good = [item for item in value if isinstance(item, int) and not isinstance(item, bool) and item >= 0]
        if len(good) < len(value):
            self._notes.append(f"rank_list={value!r} may hold only whole numbers from 0; the others are ignored")
        return tuple(dict.fromkeys(good))

    def _default(self, name: str, expected: str) -> Any:
        self._notes.append(f"{name}={self._data[name]!r} is not {expected}; using {json.dumps(TEMPLATE[name])}")
        return TEMPLATE[name]

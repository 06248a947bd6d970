# SPDX-License-Identifier: Apache-2.0
"""Repairs lines of NDJSON that a strict parser refuses, or leaves them out; every change is counted."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import orjson

from stepscope.formats.chrome.inflate import Note
from stepscope.tables import issues


def repair_lines(lines: bytes, note: Note, border: bytes | None = None, *, all_lines: bool = False) -> bytes:
    """Return the lines that are objects, with null for values that JSON does not have.

    Args:
        lines: objects, one per line.
        note: called for everything changed or left out.
        border: separator of events; a line that is not an object may be several around a damaged one, and is cut there.
        all_lines: rewrite good lines too, for a parser that refuses what this one accepts.
    """
    kept = []
    for line in lines.split(b"\n"):
        fixed = line if not all_lines and _is_event(line) else _rewrite(line, note, quiet=bool(border and border in line))
        if fixed:
            kept.append(fixed)
        elif border and border in line:
            kept.append(repair_lines(line.replace(border, b"}\n{"), note))
    return b"\n".join(kept)


def _is_event(line: bytes) -> bool:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return isinstance(event, dict) and isinstance(event.get("args", {}), dict)


def _rewrite(line: bytes, note: Note, *, quiet: bool) -> bytes | None:
    """The line as strict JSON; None when that cannot be, which is noted unless `quiet`."""
    if not line.strip():
        return None
    constants: list[str] = []
    try:
        # The standard parser takes what others refuse: NaN, Infinity, lone surrogates, control characters.
        text = line.decode("utf-8", "replace")
        event = json.loads(text, strict=False, parse_constant=lambda word: constants.append(word))
    except (ValueError, RecursionError):
        note(issues.UNREADABLE_EVENT, int(not quiet), "not valid JSON")
        return None
    if not isinstance(event, dict):
        note(issues.UNREADABLE_EVENT, int(not quiet), "not an object")
        return None
    if not isinstance(event.get("args") or {}, dict):
        note(issues.UNREADABLE_VALUE, 1, "args that are not an object")
        event["args"] = None
    if "\ufffd" in text:
        note(issues.TEXT_NOT_UTF8, 1, "in events")
    infinite: list[float] = []
    cleaned = orjson.dumps(_plain(event, infinite))
    note(issues.UNREADABLE_VALUE, len(constants) + len(infinite), "NaN or infinite")
    return cleaned


def _plain(value: Any, infinite: list[float]) -> Any:
    """The value with what cannot be written as strict JSON turned to null or text."""
    if isinstance(value, dict):
        return {_plain(key, infinite): _plain(item, infinite) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, infinite) for item in value]
    if isinstance(value, float) and not isfinite(value):
        infinite.append(value)
        return None
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value

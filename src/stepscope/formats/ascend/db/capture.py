# SPDX-License-Identifier: Apache-2.0
"""What a database says about its capture: host, devices, rank, environment (docs/formats/outputs.md 12.1)."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import orjson

from stepscope.formats.ascend.db.database import Database
from stepscope.tables import Facts

_SCHEMA_KEYS = ("SCHEMA_VERSION", "SCHEMA_VERSION_MAJOR", "SCHEMA_VERSION_MINOR", "SCHEMA_VERSION_MICRO")


def with_database(facts: Facts, db: Database) -> Facts:
    """The facts, with what only the database knows filled in; what is known already stays."""
    meta = db.frame("META_DATA", required=("name", "value"))
    texts = dict(meta.iter_rows())
    found: dict[str, Any] = {
        "device_kind": "npu",
        "generation": _generation(texts.get("SCHEMA_VERSION", ""), db),
        "metadata": {key: _value(text) for key, text in texts.items() if key not in _SCHEMA_KEYS},
    }
    modelled = found["metadata"].get("modelled")
    found["modelled"] = tuple(map(str, modelled)) if isinstance(modelled, list) else ()
    host = db.frame("HOST_INFO").rows(named=True)
    if host:
        found |= {"host_uid": host[0]["hostUid"] or "", "host_name": host[0]["hostName"] or ""}
    ranks = db.frame("RANK_DEVICE_MAP", required=("rankId",))
    devices = db.frame("NPU_INFO", required=("id",))
    found["device_names"] = {str(number): name for number, name in devices.select("id", "name").iter_rows() if name}
    numbers = ranks["deviceId"].drop_nulls().to_list() + devices["id"].to_list()
    found["device_ids"] = tuple(sorted({number for number in numbers if number >= 0}))
    known_ranks = [rank for rank in ranks["rankId"] if rank >= 0]
    if known_ranks:
        found["rank"] = known_ranks[0]
    session = db.frame("SESSION_TIME_INFO", required=("startTimeNs",)).rows(named=True)
    if session:
        found |= {"session_start_ns": session[0]["startTimeNs"], "session_end_ns": session[0]["endTimeNs"]}
    unsaid = Facts()
    names = {item.name for item in fields(Facts)}
    new = {key: value for key, value in found.items() if key in names and getattr(facts, key) == getattr(unsaid, key)}
    if session and session[0]["startTimeNs"] is not None:
        # The device's own session; that of profiler_info begins with the profiler, before the device records.
        new |= {key: found[key] for key in ("session_start_ns", "session_end_ns")}
    if facts.metadata:
        new["metadata"] = {**found["metadata"], **facts.metadata}
    return facts.replace(source=facts.source or "ascend_db", **new)


def _generation(version: str, db: Database) -> str:
    # Version 1.0.0 belongs to the first generation, 1.2.0 to the current one (docs/formats/outputs.md 12).
    if version:
        return {"1.0.0": "G1", "1.1.0": "G2"}.get(version, "G3")
    return "G3" if "blockNum" in db.columns.get("COMPUTE_TASK_INFO", ()) else ""


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text

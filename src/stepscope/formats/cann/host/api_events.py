# SPDX-License-Identifier: Apache-2.0
"""Calls of the host: plain records and pairs of events as one list (docs/formats/cann.md 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.host.codes import ACL_GROUPS, code_names
from stepscope.formats.cann.host.dictionaries import Dictionaries, level_names
from stepscope.formats.cann.layouts import API_EVENT, EVENT_END
from stepscope.formats.cann.records import read_records
from stepscope.tables import issues, lost

ACL, MODEL, NODE, COMMUNICATION, RUNTIME = 20000, 15000, 10000, 5500, 5000
_STEP_INFO = "step_info"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Apis:
    """Columns of all calls, sorted by begin, outer levels first; times in ticks of the host counter."""

    level: npt.NDArray[np.uint16]
    type: npt.NDArray[np.uint32]
    tid: npt.NDArray[np.uint32]
    begin: npt.NDArray[np.uint64]
    end: npt.NDArray[np.uint64]
    item: npt.NDArray[np.uint64]
    request: Ints  # index id of a pair of events; -1 for a plain call, whose field holds garbage
    lost: tuple[pl.DataFrame, ...] = ()

    def __len__(self) -> int:
        return len(self.level)


def read_apis(host: Part | None) -> Apis:
    records = read_records(host, API_EVENT)
    rows = records.rows
    is_event = rows["end"] == EVENT_END
    losses = list(records.lost)
    calls = rows if not is_event.any() else rows[~is_event]
    columns = {name: np.ascontiguousarray(calls[name]) for name in ("level", "type", "tid", "begin", "end", "item")}
    request = np.full(len(calls), -1, np.int64)
    if is_event.any():
        first, second, unpaired = _pairs(rows[is_event])
        more = {"end": second["begin"]}
        columns = {name: np.concatenate([column, more.get(name, first[name])]) for name, column in columns.items()}
        request = np.concatenate([request, first["request"].astype(np.int64)])
        losses.append(lost(issues.UNPAIRED_RECORD, "api_event", unpaired, "events"))
    backwards = columns["end"] < columns["begin"]
    if backwards.any():
        losses.append(lost(issues.ENDS_BEFORE_START, "api_event", int(backwards.sum())))
        columns = {name: column[~backwards] for name, column in columns.items()}
        request = request[~backwards]
    order = np.lexsort((-columns["level"].astype(np.int32), columns["begin"]))
    columns = {name: column[order] for name, column in columns.items()}
    return Apis(**columns, request=request[order], lost=tuple(row for row in losses if row.height))


def _pairs(events: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], int]:
    """First and second events of equal (level, type, thread, request, item) in file order, and how many stayed unpaired."""
    fields = ("level", "type", "tid", "request", "item")
    order = np.lexsort([events[name] for name in fields])  # stable: file order inside a key
    events = events[order]
    new = np.ones(len(events), bool)
    new[1:] = np.any([events[name][1:] != events[name][:-1] for name in fields], axis=0)
    starts = np.flatnonzero(new)
    place = np.arange(len(events)) - np.repeat(starts, np.diff(np.append(starts, len(events))))
    has_next = np.append(~new[1:], False)
    first = np.flatnonzero((place % 2 == 0) & has_next)
    return events[first], events[first + 1], len(events) - 2 * len(first)


def api_frame(apis: Apis, host: Part | None, words: Dictionaries) -> pl.DataFrame:
    """Columns of table `api_calls` and what only raw records have."""
    clock = host.clock if host else None
    kind = words.type_names(apis.level, apis.type)
    item = words.hashes.text(apis.item)
    is_acl = pl.Series(apis.level == ACL)
    numbered = pl.Series((apis.level == MODEL) | ((apis.level == NODE) & (kind == _STEP_INFO).to_numpy()))
    if numbered.any():  # their item is a number, not a text
        item = pl.Series(apis.item).cast(pl.String).set(pl.Series(apis.item == 0), None).zip_with(numbered, item)
    group = code_names(apis.type >> np.uint32(16), ACL_GROUPS) if is_acl.any() else kind
    name = kind
    is_communication = pl.Series(apis.level == COMMUNICATION)
    if is_communication.any():
        name = item.fill_null("0").zip_with(is_communication, kind)
    return pl.DataFrame(
        {
            "pid": pl.repeat(host.pid if host else None, len(apis), dtype=pl.Int64, eager=True),
            "tid": apis.tid.astype(np.int64),
            "start_ns": clock.ns(apis.begin) if clock else np.empty(0, np.int64),
            "end_ns": clock.ns(apis.end) if clock else np.empty(0, np.int64),
            "level": level_names(apis.level),
            "name": name,
            "connection_id": np.arange(1, len(apis) + 1, dtype=np.int64),
            "mode": group.zip_with(is_acl, kind),
            "item_id": item,
            "type": kind,
            "request_id": pl.Series(apis.request).set(pl.Series(apis.request < 0), None),
            "has_begin": apis.begin != 0,
        }
    )

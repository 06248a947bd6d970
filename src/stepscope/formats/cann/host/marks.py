# SPDX-License-Identifier: Apache-2.0
"""Marks and ranges that the user set, the host's part (docs/formats/cann.md 3.7)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.host.codes import MARK_KINDS, code_names
from stepscope.formats.cann.host.dictionaries import Dictionaries
from stepscope.formats.cann.layouts import MSPROFTX
from stepscope.formats.cann.records import read_records
from stepscope.tables import issues, lost

_DEFAULT_DOMAIN = "default"
_STAMP, _MSTX = 0, 1
MESSAGE_AT = 100


def read_marks(host: Part | None, words: Dictionaries) -> tuple[pl.DataFrame, tuple[pl.DataFrame, ...]]:
    records = read_records(host, MSPROFTX)
    rows = records.rows
    losses = list(records.lost)
    has_source = np.isin(rows["source"], (_STAMP, _MSTX))
    if not has_source.all():
        losses.append(lost(issues.UNKNOWN_KIND, MSPROFTX.file, int((~has_source).sum()), "source of marks"))
        rows = rows[has_source]
    rows, messages, orphans = _messages(rows)
    if orphans:
        losses.append(lost(issues.UNPAIRED_RECORD, MSPROFTX.file, orphans, "parts of messages without the first"))
    is_mstx = pl.Series(rows["source"] == _MSTX)
    begin, end = np.ascontiguousarray(rows["begin"]), np.ascontiguousarray(rows["end"])
    end = np.maximum(begin, end)  # a moment may have no end
    clock = host.clock if host else None
    domain = words.hashes.text(rows["domain"])
    frame = pl.DataFrame(
        {
            "pid": rows["pid"].astype(np.int64),
            "tid": rows["mark_tid"].astype(np.int64),
            "start_ns": clock.ns(begin) if clock else np.empty(0, np.int64),
            "end_ns": clock.ns(end) if clock else np.empty(0, np.int64),
            "message": pl.Series(messages, dtype=pl.String),
            "domain": domain.set((domain == _DEFAULT_DOMAIN).fill_null(False), None),
            "kind": code_names(rows["event"], MARK_KINDS),
            "category": pl.Series(rows["category"].astype(np.int64)).set(is_mstx, None),
            "payload_type": rows["payload_type"].astype(np.int64),
            "payload": np.ascontiguousarray(rows["payload"]),
            "message_type": rows["message_type"].astype(np.int64),
            "mark_id": pl.Series(np.minimum(rows["mark"], np.uint64(1 << 62)).astype(np.int64)).set(~is_mstx, None),
        }
    )
    return frame.sort("start_ns", maintain_order=True), tuple(losses)


def _messages(rows: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], list[str], int]:
    """Whole marks with their texts: long messages lie in several records of one mark, numbered from 0."""
    raw = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), MSPROFTX.size)[:, MESSAGE_AT:]
    texts = [row.tobytes().partition(b"\0")[0] for row in raw]
    later = np.flatnonzero(rows["segment"] > 0)
    orphans = 0
    if len(later):
        heads = {(int(row["source"]), int(row["mark"])): place for place, row in enumerate(rows) if row["segment"] == 0}
        for place in later[np.argsort(rows["segment"][later], kind="stable")].tolist():
            head = heads.get((int(rows["source"][place]), int(rows["mark"][place])))
            orphans += head is None
            if head is not None:
                texts[head] += texts[place]
        first = np.flatnonzero(rows["segment"] == 0)
        rows, texts = rows[first], [texts[place] for place in first.tolist()]
    return rows, [text.decode("utf-8", "replace") for text in texts], orphans

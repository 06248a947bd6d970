# SPDX-License-Identifier: Apache-2.0
"""The arrows of a timeline that touch a window."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepscope.web.parameters import Query
from stepscope.web.problems import bad_parameter
from stepscope.web.timeline.index import TraceIndex


def flows(index: TraceIndex, query: Query) -> dict[str, Any]:
    """Arrows with a part in the window, spread evenly over time when there are too many."""
    wanted = query.texts("cats")
    unknown = [category for category in wanted if category not in index.categories]
    if unknown:
        raise bad_parameter("cats", f"among {', '.join(index.categories) or 'none: the capture has no arrows'}")
    limit = query.number("limit", 2000, least=1, most=20_000)
    low, high = query.window(index.length_ns)
    arrows = index.arrows
    numbers = [number for number, category in enumerate(index.categories) if category in wanted]
    chosen = np.isin(arrows["category"], numbers)
    begins, ends = np.minimum(arrows["from_ns"], arrows["to_ns"]), np.maximum(arrows["from_ns"], arrows["to_ns"])
    chosen &= (begins >= low) & (ends < high) if query.flag("inside") else (begins < high) & (ends >= low)
    tracks = query.numbers("tracks")
    if tracks is not None:
        chosen &= np.isin(arrows["from_track"], tracks) & np.isin(arrows["to_track"], tracks)
    hits = np.flatnonzero(chosen)
    shown = hits if hits.size <= limit else hits[np.linspace(0, hits.size - 1, limit).astype(np.int64)]
    columns: dict[str, list[Any]] = {"category": arrows["category"][shown].tolist()}
    for side in ("from", "to"):
        ids, tracks_of = arrows[f"{side}_id"][shown], arrows[f"{side}_track"][shown]
        rows = index.row_of(np.maximum(ids, 0)) if shown.size else ids
        columns[f"{side}_ns"] = arrows[f"{side}_ns"][shown].tolist()
        columns[f"{side}_track"] = [track if track >= 0 else None for track in tracks_of.tolist()]
        columns[f"{side}_row"] = [row if number >= 0 else None for row, number in zip(rows.tolist(), ids.tolist(), strict=True)]
        columns[f"{side}_id"] = [number if number >= 0 else None for number in ids.tolist()]
    return {"count": int(hits.size), "thinned": bool(hits.size > limit), "category": index.categories, "arrows": columns}

# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG: stacked bars, curves, and a picture of the timeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stepscope.web.html_report.colours import colour_of
from stepscope.web.html_report.markup import Markup, joined, tag, time_text
from stepscope.web.timeline.binary_columns import decode
from stepscope.web.timeline.index import TraceIndex
from stepscope.web.views import trace

WIDTH = 1120
_LEFT, _BOTTOM = 70, 22
MOST_BARS = 64
MOST_ROWS = 48  # of the timeline
_ROW, _LABELS = 12, 190


def legend(names: Sequence[str]) -> Markup:
    return tag("p", *(tag("span", tag("i", style=f"background:{colour_of(name)}"), name) for name in names), class_="legend")


def stacked_bars(series: Sequence[str], bars: Sequence[tuple[str, Sequence[float]]], label: str, height: int = 190) -> Markup:
    """Upright bars in us, one colour per series; the table beside it has the numbers."""
    shown = bars[:MOST_BARS]
    largest = max((sum(values) for _, values in shown), default=0.0) or 1.0
    room, tall = (WIDTH - _LEFT) / max(1, len(shown)), height - _BOTTOM - 8
    width = min(46.0, room * 0.7)
    parts: list[Markup] = [_rule(8 + tall * (1 - share), time_text(largest * share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    for place, (name, values) in enumerate(shown):
        x, top = _LEFT + room * (place + 0.5), 8.0 + tall
        for kind, value in zip(series, values, strict=True):
            size = tall * value / largest
            top -= size
            tooltip = tag("title", f"{name} · {kind} · {time_text(value)}")
            parts.append(
                tag(
                    "rect",
                    tooltip,
                    x=f"{x - width / 2:.1f}",
                    y=f"{top:.1f}",
                    width=f"{width:.1f}",
                    height=f"{size:.1f}",
                    fill=colour_of(kind),
                )
            )
        if len(shown) <= 24:
            parts.append(tag("text", name[:14], x=f"{x:.1f}", y=height - 6, text_anchor="middle"))
    return joined(legend(series), _svg(height, label, *parts))


def curves(series: Sequence[Mapping[str, Any]], label: str, height: int = 200) -> Markup:
    """Values that hold until the next one, over real time (x in ms, y in MB)."""
    drawn = [one for one in series if one["x_ms"]]
    low = min((one["x_ms"][0] for one in drawn), default=0.0)
    high = max((one["x_ms"][-1] for one in drawn), default=1.0)
    largest = max((value for one in drawn for value in one["y"] if value is not None), default=0.0) or 1.0
    tall = height - _BOTTOM - 8
    across = (WIDTH - _LEFT - 4) / ((high - low) or 1.0)
    parts = [_rule(8 + tall * (1 - share), f"{largest * share:,.4g} MB") for share in (0.0, 0.5, 1.0)]
    for one in drawn:
        points, before = [], None
        for x, y in zip(one["x_ms"], one["y"], strict=True):
            if y is None:
                continue
            place, level = _LEFT + (x - low) * across, 8 + tall * (1 - y / largest)
            points.append(f"M{place:.1f} {level:.1f}" if before is None else f"H{place:.1f}V{level:.1f}")
            before = level
        dashes = "5 3" if "Reserved" in one["name"] else None
        parts.append(
            tag("path", d="".join(points), fill="none", stroke=colour_of(one["name"]), stroke_width="1.5", stroke_dasharray=dashes)
        )
    parts += [
        tag("text", f"{at:,.4g} ms", x=x, y=height - 6, text_anchor=side)
        for at, x, side in ((low, _LEFT, "start"), (high, WIDTH, "end"))
    ]
    return joined(legend([one["name"] for one in drawn]), _svg(height, label, *parts))


def timeline(index: TraceIndex) -> Markup:
    """The whole capture, the three fullest rows of each track; a pixel shows the longest of its slices."""
    count = np.diff(index.row_bounds)
    lanes = [
        (track, row)
        for track in index.tracks
        if track["kind"] == "slice"
        for row in sorted(sorted(track["rows"], key=lambda row: -count[row])[:3])
    ][:MOST_ROWS]
    if not lanes or not index.length_ns:
        return Markup("")
    level = max(0, int(index.length_ns // 512).bit_length())
    across = (WIDTH - _LABELS) / index.length_ns
    by_colour: defaultdict[str, list[str]] = defaultdict(list)
    parts, y, before = [], 4, None
    for place, tile in enumerate(decode(trace.tiles(index, [[row, level, 0] for _, row in lanes]))):
        track = lanes[place][0]
        if track is not before:
            y += 5
            process = index.processes[track["process"]]["name"]
            parts.append(tag("text", f"{process} · {track['label']}"[:30], x=0, y=y + 9))
        before = track
        for start, length, name in zip(tile["start"].tolist(), tile["dur"].tolist(), tile["name"].tolist(), strict=True):
            width = max(0.6, length * across)
            by_colour[colour_of(index.names[name])].append(
                f"M{_LABELS + start * across:.1f} {y}h{width:.1f}v{_ROW - 2}h-{width:.1f}z"
            )
        y += _ROW
    parts += [tag("path", d="".join(pieces), fill=colour) for colour, pieces in by_colour.items()]
    parts.append(tag("text", f"0 … {time_text(index.length_ns / 1000)}", x=WIDTH, y=y + 12, text_anchor="end"))
    return _svg(y + 18, "The whole capture; stepscope view shows every slice", *parts)


def _svg(height: int, label: str, *parts: Markup) -> Markup:
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label)


def _rule(y: float, text: str) -> Markup:
    return joined(
        tag("line", x1=_LEFT, x2=WIDTH, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="rule"),
        tag("text", text, x=_LEFT - 8, y=f"{y + 4:.1f}", text_anchor="end"),
    )

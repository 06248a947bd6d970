# SPDX-License-Identifier: Apache-2.0
"""Metrics as text for Prometheus: the older format, or OpenMetrics where `Accept` asks for it.

One text cannot serve both: the older format names a counter with its ending `_total` in `# TYPE`, the newer one without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stepscope.formats.ring.layout import BOUNDS_SECONDS
from stepscope.watch.metrics import COUNTER, HISTOGRAM, Family, Point

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers OpenMetrics."""
    weights = {"text/plain": 0.0, "application/openmetrics-text": 0.0}
    for part in accept.lower().split(","):
        kind, *parameters = (word.strip() for word in part.split(";"))
        weight = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        if kind in weights:
            weights[kind] = max(weights[kind], _weight(weight))
    return weights["application/openmetrics-text"] > weights["text/plain"]


def render(families: Sequence[Family], *, openmetrics: bool) -> bytes:
    lines: list[str] = []
    for family in families:
        ending = "_total" if family.kind == COUNTER else ""
        named = family.text if openmetrics else family.text + ending
        lines += [f"# HELP {named} {family.help}", f"# TYPE {named} {family.kind}"]
        for point in family.points:
            if family.kind == HISTOGRAM:
                lines.extend(_histogram(family, point))
            else:
                lines.append(f"{family.text}{ending}{_labels(point.labels)} {_value(point.value, whole=family.whole)}")
    return ("\n".join([*lines, *(["# EOF"] if openmetrics else [])]) + "\n").encode()


def _histogram(family: Family, point: Point) -> Iterator[str]:
    labels, total = point.labels, 0
    for bound, count in zip((*map(_bound, BOUNDS_SECONDS), "+Inf"), point.buckets, strict=True):
        total += count
        yield f"{family.text}_bucket{_labels({**labels, 'le': bound})} {total}"
    yield f"{family.text}_sum{_labels(labels)} {_value(point.value)}"
    yield f"{family.text}_count{_labels(labels)} {total}"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_clean(value)}"' for name, value in labels.items()) + "}"


def _clean(value: str) -> str:
    return value.encode("utf-8", "replace").decode().translate(_ESCAPES)


def _bound(seconds: float) -> str:
    return repr(float(seconds))


def _value(value: float, *, whole: bool = False) -> str:
    return str(int(value)) if whole else repr(float(value))


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0

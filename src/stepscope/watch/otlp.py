# SPDX-License-Identifier: Apache-2.0
"""Metrics as OTLP/HTTP JSON: one request for all ranks of a machine. 64-bit integers are text there."""

from __future__ import annotations

import json
import os
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stepscope import __version__
from stepscope.errors import CaptureError
from stepscope.formats.ring.layout import BOUNDS_SECONDS
from stepscope.watch.metrics import COUNTER, GAUGE, HISTOGRAM, Family, Point, families
from stepscope.watch.rings import RankState, live_states

SECONDS = 30.0
JITTER = 0.2  # share of the interval by which machines are spread
TIMEOUT_SECONDS = 10.0
_CUMULATIVE = 2


def endpoint(given: str = "") -> str:
    """The address to send to, from the option or the variables of OpenTelemetry; empty: none."""
    exact = os.environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "")
    base = given or exact or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    if not base or (not given and exact):
        return base
    return base if base.endswith("/v1/metrics") else f"{base.rstrip('/')}/v1/metrics"


def document(states: Sequence[RankState], now_ns: int, *, histogram: bool = True) -> dict[str, Any]:
    """One `ExportMetricsServiceRequest`, with a resource for each process."""
    return {"resourceMetrics": [_resource(state, now_ns, histogram) for state in states]}


def push(folder: Path, address: str, *, histogram: bool = True) -> int:
    """Send the metrics of all live ranks once; gives how many ranks.

    Raises:
        CaptureError: the address does not take them.
    """
    states = live_states(folder)
    if not states:
        return 0
    body = json.dumps(document(states, time.time_ns(), histogram=histogram)).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json", **_headers()})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            answer.read(1 << 16)
    except (OSError, ValueError) as problem:
        raise CaptureError(
            "metrics could not be sent", where=address, cause=str(problem), fix="check the address of the collector"
        ) from problem
    return len(states)


def push_for_ever(
    folder: Path, address: str, *, histogram: bool, going: Callable[[float], bool], report: Callable[[str], None]
) -> None:
    """Send every half minute until `going(seconds)`, which waits, says no; a failure is reported when it begins and ends."""
    failing = False
    while going(SECONDS * (1 + JITTER * (random.random() - 0.5))):
        try:
            push(folder, address, histogram=histogram)
        except CaptureError as problem:
            if not failing:
                report(f"{problem.what}: {problem.where}: {problem.cause}; trying again every {SECONDS:.0f} s")
            failing = True
        else:
            if failing:
                report(f"metrics are sent again: {address}")
            failing = False


def _headers() -> dict[str, str]:
    """Those of OTEL_EXPORTER_OTLP_HEADERS: key=value, with commas between."""
    pairs = (part.partition("=") for part in os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(","))
    return {key.strip(): value.strip() for key, given, value in pairs if given and key.strip()}


def _resource(state: RankState, now_ns: int, histogram: bool) -> dict[str, Any]:
    about = {"service.name": str(state.identity.get("job", "")), "host.name": str(state.identity.get("host", ""))}
    attributes = [_attribute(*pair) for pair in about.items()]
    pid = state.identity.get("pid")
    if isinstance(pid, int):
        attributes.append({"key": "process.pid", "value": {"intValue": str(pid)}})
    began = state.identity.get("began_ns")
    moment = {"startTimeUnixNano": str(began if isinstance(began, int) else now_ns), "timeUnixNano": str(now_ns)}
    metrics = [_metric(family, moment) for family in families([state], histogram=histogram)]
    scope = {"name": "stepscope.watch", "version": __version__}
    return {"resource": {"attributes": attributes}, "scopeMetrics": [{"scope": scope, "metrics": metrics}]}


def _metric(family: Family, moment: dict[str, str]) -> dict[str, Any]:
    points = [{**moment, **_value(family, point)} for point in family.points]
    made: dict[str, Any] = {"name": family.name, "description": family.help, "unit": family.unit}
    if family.kind == GAUGE:
        return {**made, "gauge": {"dataPoints": points}}
    body: dict[str, Any] = {"aggregationTemporality": _CUMULATIVE, "dataPoints": points}
    if family.kind == COUNTER:
        body["isMonotonic"] = True
    return {**made, "sum" if family.kind == COUNTER else "histogram": body}


def _value(family: Family, point: Point) -> dict[str, Any]:
    attributes = [_attribute(*pair) for pair in point.labels.items()]
    if family.kind == HISTOGRAM:
        return {
            "attributes": attributes,
            "count": str(sum(point.buckets)),
            "sum": point.value,
            "bucketCounts": [str(count) for count in point.buckets],
            "explicitBounds": list(BOUNDS_SECONDS),
        }
    return {"attributes": attributes, **({"asInt": str(int(point.value))} if family.whole else {"asDouble": point.value})}


def _attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value.encode("utf-8", "replace").decode()}}

# SPDX-License-Identifier: Apache-2.0
"""Real Kineto traces come out as they went in: every span, its category and time, its ids and dims."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from stepscope.analysis.link.capture import link
from stepscope.export.trace.kineto import write_kineto
from stepscope.formats.kineto import read as kineto

TRACES = ["gpu_alexnet_sync_events", "h100_bert_small", "mi250_minitoy_train_ROCm6_2_kineto", "gpu_two_ranks/sampled_rank-0"]
# What tools work with. Others (Ev Idx, Concrete Inputs, cbid, context, …) are not in our tables.
KEPT = (
    "External id", "Sequence number", "Fwd thread id", "Input Dims", "Input type", "Python id", "Python parent id", "correlation",
    "device", "stream", "grid", "block", "bytes", "memory bandwidth (GB/s)", "registers per thread", "shared memory",
    "blocks per SM", "est. achieved occupancy %", "cuda_sync_kind", "wait_on_stream", "Bytes", "Addr", "Device Type",
)  # fmt: skip


def loaded(path: Path) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return whole


def spans(trace: dict[str, Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for event in trace["traceEvents"]:
        if event["ph"] == "X" or event["name"] == "[memory]":
            known = {key: float(value) if isinstance(value, Decimal) else value for key, value in event.get("args", {}).items()}
            place = [event.get(key) for key in ("ph", "cat", "name", "pid", "tid")]
            times = [str(Decimal(event.get(key, 0)).normalize()) for key in ("ts", "dur")]
            kept = KEPT if event["cat"] != "cuda_runtime" else ("External id", "correlation")
            found[json.dumps([*place, *times, {key: known.get(key) for key in kept}])] += 1
    return found


@pytest.mark.parametrize("name", TRACES)
def test_spans_and_header(golden, tmp_path, name):
    source = golden / "kineto" / f"{name}.json.gz"
    before = loaded(source)
    after = loaded(write_kineto(link(kineto.read(source)), tmp_path / "out.json.gz"))
    lost, added = spans(before) - spans(after), spans(after) - spans(before)
    assert (list(lost)[:3], list(added)[:3]) == ([], [])
    header = {key: value for key, value in before.items() if key not in ("traceEvents", "traceName", "INFO")}
    assert {key: after.get(key) for key in header} == header

# SPDX-License-Identifier: Apache-2.0
"""What is a kernel, an operator and a step on real GPU traces, counted here from the events alone."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stepscope.analysis.link.capture import link
from stepscope.analysis.operators import operator_summary
from stepscope.analysis.statistics import kernel_rows, kernel_summary
from stepscope.capture import open_capture
from stepscope.export.kernel_details import shown_rows
from stepscope.formats.kineto import read as kineto
from stepscope.tables import Tables


def both(golden: Path, name: str) -> tuple[Tables, list[dict[str, Any]]]:
    path = golden / "kineto" / name
    whole = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return link(kineto.read(path)), [event for event in whole["traceEvents"] if event["ph"] == "X"]


def test_waits_are_not_kernels(golden):
    tables, events = both(golden, "gpu_alexnet_sync_events.json.gz")
    counts = Counter(event.get("cat") for event in events)
    work = counts["kernel"] + counts["gpu_memcpy"] + counts["gpu_memset"]
    assert (work, counts["cuda_sync"]) == (98, 41)
    assert (tables.kernels.height, tables.waits.height) == (work, counts["cuda_sync"])
    shown = kernel_summary(tables)
    assert shown["calls"].sum() == work
    assert shown["total_ns"].sum() == 1000 * sum(
        event["dur"] for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    )
    assert kernel_summary(tables, all_tasks=True)["calls"].sum() == work + counts["cuda_sync"]


@pytest.mark.parametrize("name", ["gpu_nccl.pt.trace.json.gz", "mi300_resnet_act_checkpoint.json.gz"])
def test_a_kernel_belongs_to_the_step_that_launched_it(golden, name):
    tables, events = both(golden, name)
    steps = [
        (event["ts"], event["ts"] + event["dur"], int(event["name"].removeprefix("ProfilerStep#")))
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep#")
    ]
    launches = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    expected: Counter[int | None] = Counter()
    for event in events:
        if event.get("cat") == "kernel":
            launch = launches.get(event["args"]["correlation"])
            inside = (number for start, end, number in steps if launch is not None and start <= launch <= end)
            expected[next(inside, None)] += 1
    found = kernel_rows(tables)["step"]
    assert Counter(found.to_list()) == expected


def test_rows_of_nccl_keep_their_stream(golden):
    tables, events = both(golden, "gpu_nccl.pt.trace.json.gz")
    streams = Counter(event["args"]["stream"] for event in events if event.get("cat") == "kernel" and "nccl" in event["name"])
    assert Counter(tables.collectives["stream"].to_list()) == streams
    shown = shown_rows(tables).filter(pl.col("name").cast(pl.String).str.contains("nccl"))
    assert Counter(shown["stream"].to_list()) == streams


def test_annotations_are_not_operators(golden):
    tables, events = both(golden, "gpu_nccl.pt.trace.json.gz")
    calls = Counter(event["name"] for event in events if event.get("cat") == "cpu_op")
    assert dict(operator_summary(tables).select("name", "calls").rows()) == calls


@pytest.mark.parametrize("level", ["level0", "level2"])
def test_waits_and_link_tasks_do_not_head_the_kernels_of_an_npu(golden, level):
    tables = open_capture(golden / "ascend_pt" / "text" / level / "rank0_ascend_pt").tables
    names = kernel_summary(tables)["name"].to_list()
    assert names[0] == "hcom_allReduce_"
    assert not {"EVENT_WAIT", "Notify Wait", "SDMA"} & set(names)
    assert {"EVENT_WAIT", "Notify Wait", "SDMA"} <= set(kernel_summary(tables, all_tasks=True)["name"])

# SPDX-License-Identifier: Apache-2.0
"""When a view appears (docs/reference/viewer.md 5)."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from stepscope.analysis.views import has_modules
from stepscope.formats.ascend.profiler_info import read_capture_facts
from stepscope.formats.reader import CaptureFiles
from stepscope.tables.issues import MISSING_COLUMNS, UNREADABLE_FILE
from stepscope.web.loaded import LoadedCapture

VIEWS = (
    "Verdict", "Cluster", "Overview", "Operator", "NPU Kernel", "GPU Kernel", "CPU Kernel", "Trace", "Memory", "Distributed",
    "Communication", "Module", "Flame", "Source", "Roofline", "Findings", "Files",
)  # fmt: skip
_OF_FILES = {
    "step_trace_time.csv": "Overview", "operator_details.csv": "Operator", "kernel_details.csv": "NPU Kernel",
    "op_summary.csv": "NPU Kernel", "op_statistic.csv": "NPU Kernel",
    "trace_view.json": "Trace", "memory_record.csv": "Memory", "operator_memory.csv": "Memory",
    "npu_module_mem.csv": "Memory", "communication.json": "Communication", "communication_matrix.json": "Communication",
    "analysis.db": "Communication",
}  # fmt: skip


_KERNELS = {"npu": "NPU Kernel", "cpu": "CPU Kernel"}  # everything else is a GPU


def in_order(views: Iterable[str]) -> list[str]:
    return sorted(set(views), key=VIEWS.index)


def views_by_files(files: CaptureFiles) -> list[str]:
    """A guess before anything is read."""
    views = {"Files"}
    if files.output is not None:
        views |= {view for name, view in _OF_FILES.items() if (files.output / name).is_file()}
        if "NPU Kernel" in views and not files.profs and read_capture_facts(files.root)[0].device_kind == "cpu":
            views = views - {"NPU Kernel"} | {"CPU Kernel"}
        if "Trace" in views:
            views.add("Verdict")
    if files.file or files.databases:
        views |= {"Verdict", "Overview", "Operator", "Trace"}
    if files.framework or files.profs:
        views |= {"Verdict", "Overview", "Trace"} | ({"Operator"} if files.framework else {"NPU Kernel"})
    return in_order(views)


def views_of(capture: LoadedCapture) -> list[str]:
    """The views for which a capture has data."""
    tables = capture.tables
    there = {
        "Verdict": bool(tables.ops.height or capture.has_device),
        "Overview": bool(tables.steps.height or capture.has_device or tables.step_times.height or tables.ops.height),
        "Operator": bool(tables.ops.height or tables.op_times.height),
        _KERNELS.get(capture.kind, "GPU Kernel"): bool(
            capture.has_device or tables.op_type_times.height if capture.is_npu else tables.kernels.height
        ),
        "Trace": bool(capture.trace.count or len(capture.trace.samples["time"])),
        "Memory": bool(
            tables.memory_events.height
            or tables.allocations.height
            or tables.counters.filter(pl.col("source").is_in(["NPU Module Mem", "NPU MEM"])).height
        ),
        "Communication": bool(
            tables.collective_times.height
            or tables.collective_links.height
            or (capture.is_npu and tables.transfers.height)
            or tables.link_extremes.height
        ),
        "Module": has_modules(tables),
        "Flame": bool(tables.ops.height or tables.python_calls.height),
        "Source": bool(tables.ops.height and (tables.ops["stack"].count() or tables.python_calls.height)),
        "Roofline": bool(tables.ops["flops"].count()),
        "Findings": bool(tables.ops.height or capture.has_device),
        "Files": True,
    }
    damaged = {_OF_FILES[one["source"]] for one in damaged_files(tables.quality) if one["source"] in _OF_FILES}
    return in_order({view for view, present in there.items() if present} | damaged)


def damaged_files(quality: pl.DataFrame) -> list[dict[str, str]]:
    """Files of which nothing could be read: source, issue and detail."""
    issues = [issue.name for issue in (UNREADABLE_FILE, MISSING_COLUMNS)]
    rows = quality.select("source", pl.col("issue").cast(pl.String), pl.col("detail").fill_null(""))
    return rows.filter(pl.col("issue").is_in(issues)).to_dicts()

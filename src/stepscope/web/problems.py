# SPDX-License-Identifier: Apache-2.0
"""Error answers: what is wrong, in which file, and what to do (docs/http_api.md, errors)."""

from __future__ import annotations

from typing import Any

# docs/reference/viewer.md 9: what to switch on when data are missing.
SWITCHES = {
    "device": "collect with activities=[ProfilerActivity.CPU, ProfilerActivity.NPU] (or CUDA)",
    "stack": "collect with with_stack=True",
    "shapes": "collect with record_shapes=True",
    "metrics": "collect with aic_metrics=AiCMetrics.PipeUtilization and profiler_level Level1 or higher",
    "communication": "collect with profiler_level Level1 or higher in a job with several devices",
    "memory": "collect with profile_memory=True",
    "flops": "collect with with_flops=True",
    "lines": "collect with with_stack=True",
    "modules": "collect with with_modules=True or with_stack=True",
    "steps": "give the profiler a schedule and call prof.step() after every step",
    "marks": "collect with mstx=True (older versions: msprof_tx=True)",
    "gc": "collect with gc_detect_threshold set",
    "counters": "collect with sys_io, sys_interconnection, host_sys or l2_cache switched on",
    "operators": "collect with activities=[ProfilerActivity.CPU, …]",
    "timeline": "collect again; the timeline is trace_view.json, msprof_*.json, a Chrome trace or a profiler database",
}
FILES = {
    "device": "kernel_details.csv",
    "communication": "communication.json or communication_matrix.json",
    "memory": "memory_record.csv or operator_memory.csv or npu_module_mem.csv",
    "operators": "operator_details.csv or trace_view.json",
    "timeline": "trace_view.json",
    "steps": "step_trace_time.csv",
    "modules": "trace_view.json with nn.Module slices",
}


class Problem(Exception):
    """One error answer."""

    def __init__(
        self, status: int, code: str, title: str, *, detail: str = "", file: str | None = None, hint: str = "", **more: Any
    ):
        super().__init__(title)
        self.status, self.code, self.title = status, code, title
        self.detail, self.file, self.hint, self.more = detail, file, hint, more

    def body(self, number: str) -> dict[str, Any]:
        fields = {"code": self.code, "title": self.title, "detail": self.detail, "file": self.file, "hint": self.hint, "id": number}
        return {"error": {**fields, **self.more}}


def bad_parameter(name: str, why: str) -> Problem:
    return Problem(422, "parameter", f"bad parameter {name}", detail=f"{name}: {why}", hint="see docs/http_api.md")


def missing(what: str, title: str) -> Problem:
    """The capture has no such data."""
    return Problem(404, "missing_data", title, file=FILES.get(what), hint=SWITCHES[what])

# SPDX-License-Identifier: Apache-2.0
"""Processes that analyse: one beside a training job (`main`), several for many captures (`serve_captures`)."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.analyser import Request, analyse_captures, analyse_path
from stepscope.analysis_queue import work_off
from stepscope.capture import open_all, open_capture
from stepscope.child_process import serve
from stepscope.errors import CaptureError
from stepscope.export.memory_timeline import export_memory_timeline
from stepscope.export.op_args import write_op_args
from stepscope.export.stacks import export_stacks
from stepscope.export.trace.view import write as write_trace
from stepscope.tables import Tables

_NICENESS = 10


def main(text: str) -> int:
    """Do what `text` asks (`do`: analyse, chrome_trace, stacks or memory_timeline) and report the outcome."""
    request = json.loads(text)
    if request.get("background"):
        os.nice(_NICENESS)
    try:
        report = _analyse(request) if request["do"] == "analyse" else _export(request)
    except CaptureError as problem:
        report = {"ok": False, "error": str(problem)}
    _report(report)
    return 0 if report["ok"] else 3


def serve_captures() -> int:
    """Analyse captures, one after the other, for `analyse` of many."""
    return serve(analyse_path)


def work_off_queue(folder: str) -> int:
    """Analyse what waits in a folder of captures, one after the other at low priority."""
    os.nice(_NICENESS)
    work_off(Path(folder), _queued)
    return 0


def _queued(request: dict[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    try:
        outcome = _analyse(request)
    except (CaptureError, OSError) as problem:
        outcome = {"ok": False, "error": str(problem)}
    return {**outcome, "seconds": time.monotonic() - began}


def _analyse(request: dict[str, Any]) -> dict[str, Any]:
    options = Request(
        progress=_report_phase,
        steps=tuple(request.get("steps") or ()),
        pretty=bool(request.get("pretty")),
        simplify=bool(request.get("simplify", True)),
    )
    results = analyse_captures(open_all(request["capture"]), options, jobs=1)
    failed = [result for result in results if not result.ok]
    if not failed and request.get("op_args"):
        write_op_args(open_capture(request["capture"]).load(_report_phase), Path(request["capture"]))
    return {
        "ok": not failed,
        "error": "; ".join(str(result.error) for result in failed) or None,
        "files": [name for result in results for name in result.files],
        "unmet": "; ".join(result.unmet for result in results if result.unmet) or None,
    }


def _export(request: dict[str, Any]) -> dict[str, Any]:
    tables = open_capture(request["capture"]).load(_report_phase)
    target = Path(request["path"])
    exports: dict[str, Callable[[Tables], object]] = {
        "chrome_trace": lambda tables: write_trace(tables, target),
        "stacks": lambda tables: export_stacks(tables, target, request["metric"]),
        "memory_timeline": lambda tables: export_memory_timeline(tables, target, request["device"]),
    }
    _report_phase(f"writing {target.name}")
    has_data = exports[request["do"]](tables)
    if not has_data:
        return {"ok": False, "error": "the capture has no data for this file"}
    return {"ok": True, "files": [str(target)]}


def _report_phase(stage: str) -> None:
    _report({"stage": stage})


def _report(report: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()

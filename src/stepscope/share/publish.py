# SPDX-License-Identifier: Apache-2.0
"""A run in an experiment tracker: a few numbers, the report and, if wanted, the pack. Nothing is sent that was not asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stepscope.capture import Capture, open_all
from stepscope.errors import CaptureError
from stepscope.share.pack import pack
from stepscope.verdict import verdict
from stepscope.web.html_report.page import html, runs

PREFIX = "stepscope/"


def publish(path: str | Path, to: str, *, with_pack: bool = False, redact: Sequence[str] = ()) -> str:
    """Send what `stepscope verdict` and `stepscope report` say about a run to a tracker.

    Joins the active run of the tracker, else makes one. With `redact`, names are taken out of the report too.

    Args:
        path: a run or a capture.
        to: wandb or mlflow.
        with_pack: attach the captures themselves, as `stepscope pack` writes them.
        redact: as for `stepscope pack`.

    Returns:
        Where the tracker put it.
    """
    if to not in TRACKERS:
        raise CaptureError(f"unknown tracker {to!r}", fix=f"use one of {', '.join(TRACKERS)}")
    captures = open_all(path)
    with tempfile.TemporaryDirectory(prefix="stepscope-publish-") as place:
        packed = Path(place) / "capture.tar.zst"
        shown = [Path(path)]
        if with_pack or redact:
            pack(captures, packed, redact=redact)
            shown = [unpacked_beside(packed)] if redact else shown
        report = Path(place) / "report.html"
        report.write_text(html(runs(shown)), encoding="utf-8")
        return TRACKERS[to](scalars(captures), report, packed if with_pack else None)


def unpacked_beside(packed: Path) -> Path:
    from stepscope.formats.pack.unpack import unpack

    unpack(packed, packed.with_name("run"))
    return packed.with_name("run")


def scalars(captures: Sequence[Capture]) -> dict[str, float]:
    """Means over the ranks; missing where a capture cannot tell."""
    found = verdict([capture.tables for capture in captures])
    parts = [rank.partition for rank in found.ranks if rank.partition.get("total")]
    values: dict[str, float] = {"findings_high": float(sum(one.severity == "high" for one in found.findings))}
    if parts:
        values["step_ms"] = sum(part["total"] for part in parts) / len(parts) / 1e6
        for name, prefix in (("data_wait", "idle.data"), ("device_idle", "idle."), ("communication", "communication")):
            shares = [sum(ns for key, ns in part.items() if key.startswith(prefix)) / part["total"] for part in parts]
            values[f"{name}_share"] = sum(shares) / len(shares)
    peaks = [capture.tables.memory_events["total_allocated"].max() for capture in captures]
    known = [float(peak) for peak in peaks if isinstance(peak, int | float)]
    if known:
        values["peak_memory_bytes"] = max(known)
    return {PREFIX + name: value for name, value in values.items()}


def _wandb(values: dict[str, float], report: Path, packed: Path | None) -> str:
    wandb = _library("wandb", "pip install wandb")
    own = wandb.run is None
    run = wandb.init(project="stepscope", job_type="profile") if own else wandb.run
    run.summary.update(values)
    run.log({f"{PREFIX}report": wandb.Html(report.read_text(encoding="utf-8"))})
    if packed is not None:
        artifact = wandb.Artifact("capture", type="stepscope-capture")
        artifact.add_file(str(packed), name="capture.tar.zst")
        run.log_artifact(artifact)
    where = str(run.url or run.dir)
    if own:
        run.finish()
    return where


def _mlflow(values: dict[str, float], report: Path, packed: Path | None) -> str:
    mlflow = _library("mlflow", "pip install mlflow")
    own = mlflow.active_run() is None
    run = mlflow.start_run(run_name="stepscope") if own else mlflow.active_run()
    mlflow.log_metrics({name.replace("/", "."): value for name, value in values.items()})
    for file in (report, packed):
        if file is not None:
            mlflow.log_artifact(str(file), artifact_path="stepscope")
    if own:
        mlflow.end_run()
    return f"{mlflow.get_tracking_uri()}, run {run.info.run_id}"


def _library(name: str, install: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as problem:
        raise CaptureError(f"{name} is not installed", cause=str(problem), fix=install) from problem


TRACKERS: dict[str, Callable[[dict[str, float], Path, Path | None], str]] = {"wandb": _wandb, "mlflow": _mlflow}

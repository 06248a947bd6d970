# SPDX-License-Identifier: Apache-2.0
"""The memory timeline as picture, sums or raw events (docs/formats/outputs.md 11)."""

from __future__ import annotations

import base64
import gzip
import io
import re
from pathlib import Path

import orjson
import polars as pl

from stepscope.analysis.memory.categories import Category
from stepscope.analysis.memory.timeline import memory_timeline, running_sums
from stepscope.errors import CaptureError
from stepscope.render.atomic import replacing
from stepscope.tables import Tables

_DEVICE = re.compile(r"(cpu|npu|cuda)(?::(\d+))?")
_COLOURS = {  # docs/formats/enums.md 7
    Category.PARAMETER: "darkgreen",
    Category.OPTIMIZER_STATE: "goldenrod",
    Category.INPUT: "black",
    Category.TEMPORARY: "mediumpurple",
    Category.ACTIVATION: "red",
    Category.GRADIENT: "mediumblue",
    Category.AUTOGRAD_DETAIL: "royalblue",
    Category.UNKNOWN: "grey",
}
_UNITS = (("GB", 1024**3), ("MB", 1024**2), ("KB", 1024))
_INCHES, _DPI = (20, 12), 80


def export_memory_timeline(tables: Tables, path: str | Path, device: str = "npu:0") -> Path:
    """Write how much memory each category of tensors held on one device.

    Args:
        tables: linked tables of one capture.
        path: `.html` gives a picture, `raw.json.gz` every event, any other name (`.json`, `.json.gz`) sums per moment.
        device: cpu, npu:0, cuda:1 and so on; without number device 0.

    Returns:
        The file written.
    """
    path = Path(path)
    kind, number = _device(device)
    here = (pl.col("device_type") == kind) & (pl.col("device").eq_missing(number) if kind != "cpu" else pl.lit(True))
    timeline = memory_timeline(tables).filter(here)
    if not timeline.height:
        raise _nothing_there(tables, device)
    if path.name.endswith(".html"):
        content = _page(timeline, tables.memory_events.filter(here), device).encode()
    elif path.name.endswith("raw.json.gz"):
        content = _packed(timeline.select(pl.col("time_ns").fill_null(-1), "action", "bytes", "category").rows())
    else:
        times, sums = running_sums(timeline)
        content = orjson.dumps([times, [[0, *row] for row in sums]])
        content = gzip.compress(content, mtime=0) if path.suffix == ".gz" else content
    with replacing(path) as handle:
        handle.write(content)
    return path


def _device(text: str) -> tuple[str, int | None]:
    match = _DEVICE.fullmatch(text)
    if not match:
        raise CaptureError(f"{text!r} is not a device", cause="a device is cpu, npu:0, cuda:0 and so on", fix="give one of these")
    kind, number = match.groups()
    return kind, None if kind == "cpu" else int(number or 0)


def _nothing_there(tables: Tables, device: str) -> CaptureError:
    located = tables.memory_events.filter(pl.col("ptr").is_not_null())
    found = located.select(pl.col("device_type").cast(pl.String), "device").unique().sort("device_type", "device").rows()
    names = ", ".join(kind if number is None else f"{kind}:{number}" for kind, number in found if kind)
    if names:
        return CaptureError(
            f"no memory event of device {device}", cause=f"the capture has events of {names}", fix=f"choose one of {names}"
        )
    return CaptureError(
        "the capture has no memory events with addresses",
        cause="it was made without profile_memory=True, or only its parsed output is left",
        fix="capture with profile(profile_memory=True, record_shapes=True, with_stack=True) and keep the raw data",
    )


def _packed(rows: list[tuple[int, ...]]) -> bytes:
    return gzip.compress(orjson.dumps(rows), mtime=0)


def _page(timeline: pl.DataFrame, events: pl.DataFrame, device: str) -> str:
    times, sums = running_sums(timeline)
    allocated, reserved = events.select(pl.col("total_allocated", "total_reserved").max()).row(0)
    # Allocators that report no totals still have blocks.
    allocated = allocated or max(sum(row) for row in sums)
    reserved = max(reserved or 0, allocated)
    unit, size = next((pair for pair in _UNITS if reserved >= pair[1]), _UNITS[-1])
    peaks = f"Max memory allocated: {allocated / size:.2f} {unit}", f"Max memory reserved: {reserved / size:.2f} {unit}"
    layers = [[row[kind] / size for row in sums] for kind in Category]
    picture = base64.b64encode(_picture([(time - times[0]) / 1000 for time in times], layers, unit, "\n".join(peaks))).decode()
    head = f'<head><meta charset="utf-8"><title>Memory timeline of {device}</title></head>'
    described = f"Memory timeline of {device}. {'. '.join(peaks)}."
    return f'<html>{head}<body><img alt="{described}" src="data:image/png;base64,{picture}"></body></html>\n'


def _picture(milliseconds: list[float], layers: list[list[float]], unit: str, title: str) -> bytes:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CaptureError(
            "the picture of the memory timeline needs matplotlib",
            cause=str(error),
            fix="pip install 'stepscope[picture]', or export to .json or raw.json.gz instead",
        ) from error
    figure = Figure(figsize=_INCHES, dpi=_DPI)
    axes = FigureCanvasAgg(figure).figure.add_subplot()
    colours = [_COLOURS[kind] for kind in Category]
    axes.stackplot(milliseconds, layers, labels=[_label(kind) for kind in Category], colors=colours, alpha=0.7)
    axes.legend(loc="upper left")
    axes.set_xlabel("Time (ms)")
    axes.set_ylabel(f"Memory ({unit})")
    axes.set_title(title)
    target = io.BytesIO()
    figure.savefig(target, format="png")
    return target.getvalue()


def _label(kind: Category) -> str:
    return "Unknown" if kind is Category.UNKNOWN else kind.name

# SPDX-License-Identifier: Apache-2.0
"""A memory snapshot as tables (docs/formats/memory-snapshot.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.memory_snapshot.plain_pickle import NotPlain, plain_data
from stepscope.tables import ALL_TABLES, TEXT, Facts, Tables, issues, lost

Segments = list[Mapping[str, Any]]

_COMPONENT = "PTA"
_FIX = "record with torch.cuda.memory._record_memory_history() and _dump_snapshot(), and copy the file whole"
_LATEST = 1 << 61
# What an entry adds to the three totals of its device: in use, in use or waiting to be freed, reserved.
_TOTALS = {
    "total_allocated": {"alloc": 1, "free_requested": -1},
    "total_active": {"alloc": 1, "free_completed": -1},
    "total_reserved": {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1},
}
_ACTIONS = {"alloc": "malloc", "free_requested": "free", "free_completed": "block_free"}
_SILENT = ("snapshot", "oom", "user_defined")  # moments at which no memory changes hands
_ENTRY = {"action": pl.String(), "addr": pl.Int64(), "size": pl.Int64(), "stream": pl.Int64(), "time_us": pl.Int64()}
# Frames of PyTorch itself, which say nothing about who wanted the memory.
_INNER = ("??", "", "torch/csrc", "/c10/", "/aten/")


def read(path: Path) -> Tables:
    """Read a snapshot without unpickling it.

    Raises:
        CaptureError: the file holds more than plain data, is damaged, or is not a snapshot.
    """
    snapshot = _snapshot(path)
    segments: Segments = [item for item in _items(snapshot.get("segments")) if isinstance(item, dict)]
    traces = list(_items(snapshot.get("device_traces")))
    parts = [_events(device, list(_items(trace)), segments) for device, trace in enumerate(traces)]
    events = pl.concat([part for part in parts if part.height] or [_live(segments)])
    if not events.height:
        raise CaptureError(
            "the snapshot has no allocation", where=str(path), cause="its lists of events and of segments are empty", fix=_FIX
        )
    timed = events["time_us"].null_count() == 0 and bool((events["time_us"] > 0).all())
    # Old versions do not record times; the order of the events stands for it.
    when = pl.col("time_us") * 1000 if timed else pl.int_range(pl.len(), dtype=pl.Int64).over("device") * 1000
    events = events.with_columns(time_ns=when)
    known = [*_ACTIONS, *_SILENT, *_TOTALS["total_reserved"]]
    strange = events.filter(~pl.col("action").is_in(known).fill_null(False))
    quality = [
        lost(issues.INCOMPLETE_CLOCK, path.name, int(not timed), "events are in order, but have no time"),
        lost(issues.UNKNOWN_KIND, path.name, strange.height, f"action {strange['action'][0]}" if strange.height else ""),
    ]
    tables = Tables({"memory_events": _memory_events(events), "allocations": _allocations(events)})
    facts = Facts(
        source="memory snapshot",
        device_kind="cuda",
        device_ids=tuple(sorted(events["device"].unique().to_list())),
        profile_memory=True,
    )
    return tables.replace(meta=facts.table()).with_quality(*quality)


def _snapshot(path: Path) -> Mapping[str, Any]:
    try:
        found = plain_data(path.read_bytes())
    except OSError as error:
        raise CaptureError(
            "cannot be read", where=str(path), cause=error.strerror, fix="check the path and its permissions"
        ) from error
    except NotPlain as error:
        raise CaptureError(
            "the pickle holds more than plain data and is not opened",
            where=str(path),
            cause=f"{error}: reading it would run code that the file names",
            fix="give a file of torch.cuda.memory._dump_snapshot(); do not unpickle files of unknown origin",
        ) from error
    except ValueError as error:
        raise CaptureError("the pickle is damaged or cut off", where=str(path), cause=str(error), fix=_FIX) from error
    if not isinstance(found, dict) or not {"segments", "device_traces"} & set(found):
        what = ", ".join(map(str, list(found)[:5])) if isinstance(found, dict) else type(found).__name__
        raise CaptureError("this pickle is not a memory snapshot of PyTorch", where=str(path), cause=f"it holds: {what}", fix=_FIX)
    return found


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _events(device: int, entries: list[Any], segments: Segments) -> pl.DataFrame:
    """The events of one device, with the totals after each."""
    rows = [entry for entry in entries if isinstance(entry, dict)]
    columns: dict[str, pl.Series] = {key: _column([row.get(key) for row in rows], kind) for key, kind in _ENTRY.items()}
    events = pl.DataFrame(columns).with_columns(
        device=pl.lit(device, pl.Int32), frame=pl.Series([_frame(row.get("frames")) for row in rows], dtype=pl.String)
    )
    ends = _totals_at_the_end(device, segments)
    return events.with_columns(
        _running(pl.col("action").replace_strict(signs, default=0, return_dtype=pl.Int64()) * pl.col("size"), ends[total]).alias(
            total
        )
        for total, signs in _TOTALS.items()
    )


def _column(values: list[Any], kind: pl.DataType) -> pl.Series:
    """Values of the right type; null for others."""
    if kind == pl.String():
        return pl.Series([value if isinstance(value, str) else None for value in values], dtype=kind)
    fitting = [value if isinstance(value, int) and -_LATEST < value < _LATEST else None for value in values]
    return pl.Series(fitting, dtype=kind)


def _running(change: pl.Expr, end: int) -> pl.Expr:
    """Total after each event, given that after the last: what lay there before the recording counts too."""
    known = change.fill_null(0)
    return (end - known.sum() + known.cum_sum()).cast(pl.Float64)


def _totals_at_the_end(device: int, segments: Segments) -> dict[str, int]:
    own = [segment for segment in segments if segment.get("device", 0) == device]
    blocks = [block for segment in own for block in _items(segment.get("blocks")) if isinstance(block, dict)]
    sizes = [(block.get("state"), _size(block.get("requested_size", block.get("size")))) for block in blocks]
    return {
        "total_allocated": sum(size for state, size in sizes if state == "active_allocated"),
        "total_active": sum(
            size for state, size in sizes if state in ("active_allocated", "active_awaiting_free", "active_pending_free")
        ),
        "total_reserved": sum(_size(segment.get("total_size")) for segment in own),
    }


def _size(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 50 else 0


def _frame(frames: Any) -> str | None:
    """The innermost frame of the program, as `function (file:line)`."""
    named = [frame for frame in _items(frames) if isinstance(frame, dict)]
    outer = [frame for frame in named if not any(word and word in str(frame.get("filename", "")) for word in _INNER)]
    python = [frame for frame in outer if str(frame.get("filename", "")).endswith(".py")]
    chosen = next(iter(python or outer or named), None)
    return f"{chosen.get('name')} ({chosen.get('filename')}:{chosen.get('line')})" if chosen else None


def _live(segments: Segments) -> pl.DataFrame:
    """Blocks in use, for a snapshot without history: one event for each."""
    parts = []
    for device in sorted(
        {item for segment in segments if isinstance(item := segment.get("device", 0), int) and 0 <= item < 1 << 15}
    ):
        rows = []
        for segment in (segment for segment in segments if segment.get("device", 0) == device):
            address = segment.get("address")
            for block in (block for block in _items(segment.get("blocks")) if isinstance(block, dict)):
                size = _size(block.get("size"))
                place = block.get("address", address)
                wanted = {"addr": place, "size": block.get("requested_size", size), "stream": segment.get("stream")}
                if str(block.get("state", "")).startswith("active"):
                    rows.append({"action": "alloc", "frames": block.get("frames"), **wanted})
                address = place + size if isinstance(place, int) else None
        parts.append(_events(device, rows, segments))
    return pl.concat(parts) if parts else _events(0, [], [])


def _memory_events(events: pl.DataFrame) -> pl.DataFrame:
    freed = pl.col("action") != "alloc"
    rows = events.filter(pl.col("action").is_in(list(_ACTIONS)).fill_null(False)).select(
        "time_ns", "device", *_TOTALS,
        component=pl.lit(_COMPONENT), device_type=pl.lit("cuda"), inner=pl.lit(True), pid=pl.lit(0), tid=pl.lit(0),
        action=pl.col("action").replace_strict(_ACTIONS, return_dtype=pl.String()),
        ptr="addr", stream_ptr="stream", bytes=pl.when(freed).then(-pl.col("size")).otherwise("size"),
    )  # fmt: skip
    return ALL_TABLES["memory_events"].conform(rows)


def _allocations(events: pl.DataFrame) -> pl.DataFrame:
    """Each block from its alloc to its free: events of one address come in this order, those before its alloc are left out."""
    place = ["device", "addr"]
    steps = events.filter(pl.col("action").is_in(list(_ACTIONS)).fill_null(False) & pl.col("addr").is_not_null())
    after = [pl.col("action").shift(-step).over(place) for step in (1, 2)]
    steps = steps.with_columns(
        next_action=after[0], later_action=after[1],
        **{f"{name}_{step}": pl.col(name).shift(-step).over(place) for step in (1, 2) for name in ("time_ns", *_TOTALS)},
    )  # fmt: skip
    freed = pl.col("next_action") == "free_requested"
    completed_now = pl.col("next_action") == "free_completed"
    completed_later = freed & (pl.col("later_action") == "free_completed")
    ended = freed | completed_now
    blocks = steps.filter(pl.col("action") == "alloc").select(
        "device", pid=pl.lit(0), tid=pl.lit(0), name=pl.col("frame").cast(TEXT), component=pl.lit(_COMPONENT),
        device_type=pl.lit("cuda"), ptr="addr", bytes="size", stream_ptr="stream", start_ns="time_ns",
        release_ns=pl.when(ended).then("time_ns_1"),
        active_release_ns=pl.when(completed_later).then("time_ns_2").when(completed_now).then("time_ns_1"),
        **{f"alloc_{total}": pl.col(total) for total in _TOTALS},
        **{f"release_{total}": pl.when(ended).then(f"{total}_1") for total in _TOTALS},
    )  # fmt: skip
    return ALL_TABLES["allocations"].conform(blocks)

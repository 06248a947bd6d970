# SPDX-License-Identifier: Apache-2.0
"""Time, packets and links of each communication operator, as the vendor's own analysis gives them.

Two forms of communication.json hold them: `{"op@group": …}` beside the raw data of a capture and
`{"step50": {"p2p": {"op@group": …}, "collective": {…}}}` in the parsed output (outputs.md 9).
communication_matrix.json has an operator's links only in the first form; the second holds extremes and sums.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from stepscope.tables import ALL_TABLES, TEXT, lost

_INFINITE = float("inf")
TIMES, PACKETS, LINKS = ALL_TABLES["collective_times"], ALL_TABLES["collective_packets"], ALL_TABLES["collective_links"]

_CLASSES = ("p2p", "collective")
_TIME_INFO, _BANDWIDTH_INFO = "Communication Time Info", "Communication Bandwidth Info"
_TIME_KEYS = {
    "start_us": "Start Timestamp(us)",
    "elapse_ms": "Elapse Time(ms)",
    "transit_ms": "Transit Time(ms)",
    "wait_ms": "Wait Time(ms)",
    "sync_ms": "Synchronization Time(ms)",
    "idle_ms": "Idle Time(ms)",
}
_LINK_KEYS = {"transit_mb": "Transit Size(MB)", "transit_ms": "Transit Time(ms)", "bandwidth": "Bandwidth(GB/s)"}
_TRANSPORT_KEYS = {**_LINK_KEYS, "large_packet_ratio": "Large Packet Ratio"}


@dataclass(frozen=True)
class Communication:
    """The three tables, and `collectives` with the groups that were only known here."""

    collectives: pl.DataFrame
    times: pl.DataFrame
    packets: pl.DataFrame
    links: pl.DataFrame


def read_communication(
    operators: Path | None, matrix: Path | None, collectives: pl.DataFrame, *, quality: list[pl.DataFrame]
) -> Communication:
    """Read communication.json and a per-operator communication_matrix.json; either may be absent."""
    ops = _operators(_load(operators, quality), operators, quality)
    times = [_time_row(name, group, info) for name, group, info in ops]
    packets = [row for name, group, info in ops for row in _packet_rows(name, group, info)]
    linked = _operators(_load(matrix, quality), matrix, quality)
    links = [row for name, group, info in linked for row in _link_rows(name, group, info)]
    frames = [
        _frame(times, ("name", "group", *_TIME_KEYS)),
        _frame(packets, ("name", "group", "transport", *_TRANSPORT_KEYS, "packet_mb", "packets", "packets_ms")),
        _frame(links, ("name", "group", "src_rank", "dst_rank", "transport", *_LINK_KEYS)),
    ]
    keys = _places(frames, collectives)
    placed = [frame.join(keys, on=["name", "group"], how="left", nulls_equal=True, maintain_order="left") for frame in frames]
    return Communication(
        _with_groups(collectives, keys),
        *(table.conform(frame) for table, frame in zip((TIMES, PACKETS, LINKS), placed, strict=True)),
    )


def _load(path: Path | None, quality: list[pl.DataFrame]) -> Mapping[str, Any]:
    if path is None:
        return {}
    try:
        data = path.read_bytes()
    except OSError as error:
        quality.append(lost(path.name, "file not readable", 1, error.strerror or str(error)))
        return {}
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            content = json.loads(data.decode("utf-8", errors="replace"))  # takes NaN and Infinity too
        except (ValueError, RecursionError) as error:
            quality.append(lost(path.name, "file not readable", 1, f"{len(data)} bytes: {error}"))
            return {}
    if not isinstance(content, dict):
        quality.append(lost(path.name, "file not readable", 1, f"{len(data)} bytes: no JSON object"))
        return {}
    return content


def _operators(
    content: Mapping[str, Any], path: Path | None, quality: list[pl.DataFrame]
) -> list[tuple[str, str | None, Mapping[str, Any]]]:
    """(name, group, info) of each operator; sums and extremes over operators are left out."""
    found: list[tuple[str, str | None, Mapping[str, Any]]] = []
    odd = 0
    for key, info in _entries(content):
        name, _, group = key.partition("@")
        if name.lower().startswith("total") or _is_extreme(name):
            continue
        if isinstance(info, dict):
            found.append((name, group or None, info))
        else:
            odd += 1
    if path is not None:
        quality.append(lost(path.name, "operators not understood", odd, "no JSON object"))
    return found


def _entries(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if "@" not in key and isinstance(value, dict) and any(name in value for name in _CLASSES):
            for name in _CLASSES:
                part = value.get(name)
                yield from part.items() if isinstance(part, dict) else ()
        else:
            yield key, value


def _is_extreme(name: str) -> bool:
    """Whether a matrix key such as `allreduce-top1` stands for many operators (outputs.md 9.3)."""
    return name.rpartition("-")[2] in ("top1", "middle", "bottom1", "bottom2", "bottom3", "total")


def _time_row(name: str, group: str | None, info: Mapping[str, Any]) -> tuple[Any, ...]:
    times = _object(info, _TIME_INFO)
    return (name, group, *(_number(times.get(key)) for key in _TIME_KEYS.values()))


def _packet_rows(name: str, group: str | None, info: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for transport, values in _object(info, _BANDWIDTH_INFO).items():
        if not isinstance(values, dict):
            continue
        measured = [values.get(key) for key in _TRANSPORT_KEYS.values()]
        sizes = _object(values, "Size Distribution")
        if not sizes and not any(measured):
            continue  # a transport that was not used; the file lists them all
        totals = (name, group, transport, *map(_number, measured))
        for size, counted in sizes.items():
            pair = counted if isinstance(counted, list) and len(counted) == 2 else (None, None)
            packets = _number(pair[0])
            yield (*totals, _number(size), None if packets is None else int(packets), _number(pair[1]))
        if not sizes:
            yield (*totals, None, None, None)


def _link_rows(name: str, group: str | None, info: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for link, values in info.items():
        source, _, target = link.partition("-")
        if isinstance(values, dict) and source.isdecimal() and target.isdecimal():
            transport = values.get("Transport Type")
            yield (
                name, group, int(source), int(target), transport if isinstance(transport, str) else None,
                *(_number(values.get(key)) for key in _LINK_KEYS.values()),
            )  # fmt: skip


def _object(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    """A number, also when written as text (sizes of packets are keys, thus text); NaN and Infinity count as missing."""
    if type(value) is float and -_INFINITE < value < _INFINITE:
        return value  # nearly all of half a million
    if isinstance(value, (int, float, str)):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if abs(number) < _INFINITE else None
    return None


def _frame(rows: list[tuple[Any, ...]], columns: tuple[str, ...]) -> pl.DataFrame:
    texts = ("name", "group", "transport")
    whole = ("src_rank", "dst_rank", "packets")
    schema: dict[str, Any] = {name: pl.String if name in texts else pl.Int64 if name in whole else pl.Float64 for name in columns}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        pl.col(name).cast(TEXT) for name in columns if name in texts
    )


def _places(frames: list[pl.DataFrame], collectives: pl.DataFrame) -> pl.DataFrame:
    """Row of `collectives` of each (name, group): the one of that name, of several the one that starts nearest."""
    times = frames[0].select("name", "group", (pl.col("start_us") * 1000).alias("at_ns"))
    keys = pl.concat([times, *(frame.select("name", "group") for frame in frames[1:])], how="diagonal")
    keys = keys.unique(["name", "group"], keep="first", maintain_order=True)
    there = collectives.select(
        "name", "start_ns", pl.col("group").alias("its_group"), pl.int_range(pl.len(), dtype=pl.Int64).alias("collective")
    )
    other_group = (pl.col("its_group") != pl.col("group")).fill_null(False)
    away = (pl.col("start_ns") - pl.col("at_ns")).abs().fill_null(0.0)
    return (
        keys.join(there, on="name", how="left", maintain_order="left_right")
        .with_columns(other_group.alias("other_group"), away.alias("away"))
        .sort("other_group", "away", maintain_order=True)
        .unique(["name", "group"], keep="first", maintain_order=True)
        .select("name", "group", "collective")
    )


def _with_groups(collectives: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    known = (
        keys.drop_nulls()
        .unique("collective", keep="first", maintain_order=True)
        .select("collective", pl.col("group").alias("found"))
    )
    numbered = collectives.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("collective"))
    joined = numbered.join(known, on="collective", how="left", maintain_order="left")
    return joined.with_columns(pl.col("group").fill_null(pl.col("found"))).select(collectives.columns)

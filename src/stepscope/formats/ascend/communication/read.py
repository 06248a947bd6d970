# SPDX-License-Identifier: Apache-2.0
"""Reads both files, in either form, into tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from stepscope.formats.ascend.communication import keys
from stepscope.tables import ALL_TABLES, TEXT, issues, lost

TIMES, PACKETS, LINKS = ALL_TABLES["collective_times"], ALL_TABLES["collective_packets"], ALL_TABLES["collective_links"]
EXTREMES = ALL_TABLES["link_extremes"]

# As the vendor writes a transport that was not used; what differs is looked at more closely.
_UNUSED = {**dict.fromkeys(keys.PACKETS.values(), 0), keys.SIZES: {}}
_NO_SIZE = (None, None)


@dataclass(frozen=True)
class Communication:
    """The three tables, and `collectives` with the groups that were only known here."""

    collectives: pl.DataFrame
    times: pl.DataFrame
    packets: pl.DataFrame
    links: pl.DataFrame


@dataclass(frozen=True)
class _Operators:
    """Names, groups and contents of the operators of one file."""

    names: pl.Series
    groups: pl.Series
    infos: list[Mapping[str, Any]]

    def at(self, rows: list[int]) -> tuple[pl.Series, pl.Series]:
        return self.names.gather(rows), self.groups.gather(rows)


@dataclass(frozen=True)
class Recorded:
    """What the files say by names of operators, before it is known which rows of `collectives` those are."""

    frames: list[pl.DataFrame]
    quality: list[pl.DataFrame]


def recorded(operators: Path | None, matrix: Path | None) -> Recorded:
    """What communication.json and a per-operator communication_matrix.json say; either may be absent."""
    quality: list[pl.DataFrame] = []
    ops = _operators(_load(operators, quality), operators, quality)
    linked = _operators(_load(matrix, quality), matrix, quality)
    return Recorded([_times(ops), _packets(ops), _links(linked)], quality)


def placed(found: Recorded, collectives: pl.DataFrame, *, quality: list[pl.DataFrame]) -> Communication:
    """The tables, each row at its row of `collectives`."""
    quality += found.quality
    frames = found.frames
    places = _places(frames, collectives)
    joined = [frame.join(places, on=["name", "group"], how="left", nulls_equal=True, maintain_order="left") for frame in frames]
    return Communication(
        _with_groups(collectives, places),
        *(table.conform(frame) for table, frame in zip((TIMES, PACKETS, LINKS), joined, strict=True)),
    )


def read_extremes(matrix: Path | None, *, quality: list[pl.DataFrame]) -> pl.DataFrame:
    """Table `link_extremes` from the communication_matrix.json of a parsed output."""
    found: list[tuple[Any, ...]] = []
    links: list[Mapping[str, Any]] = []
    for step, kinds in _load(matrix, quality).items():
        for kind in keys.KINDS:
            for operators, pairs in _object(_as_object(kinds), kind).items():
                name, _, group = operators.partition("@")
                operator_type, _, tag = name.rpartition("-")
                for pair, values in _as_object(pairs).items():
                    source, _, target = pair.partition("-")
                    if _is_rank(source) and _is_rank(target) and isinstance(values, dict):
                        words = [values.get(key) for key in (keys.TRANSPORT, keys.OP_NAME)]
                        found.append((step, kind, operator_type, tag, group, int(source), int(target), *map(_word, words)))
                        links.append(values)
    columns = ("step", "kind", "operator_type", "tag", "group", "src_rank", "dst_rank", "transport", "op_name")
    schema = {name: pl.Int64() if name.endswith("rank") else pl.String() for name in columns}
    rows = pl.DataFrame(found, schema=schema, orient="row").with_columns(_columns(links, keys.LINK))
    return EXTREMES.conform(rows)


def _is_rank(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= 9


def _as_object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _load(path: Path | None, quality: list[pl.DataFrame]) -> Mapping[str, Any]:
    if path is None:
        return {}
    try:
        data = path.read_bytes()
    except OSError as error:
        quality.append(lost(issues.UNREADABLE_FILE, path.name, 1, error.strerror or str(error)))
        return {}
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            content = json.loads(data.decode("utf-8", errors="replace"))  # takes NaN and Infinity too
        except (ValueError, RecursionError) as error:
            quality.append(lost(issues.UNREADABLE_FILE, path.name, 1, f"{len(data)} bytes: {error}"))
            return {}
    if not isinstance(content, dict):
        quality.append(lost(issues.UNREADABLE_FILE, path.name, 1, f"{len(data)} bytes: not a JSON object"))
        return {}
    return content


def _operators(content: Mapping[str, Any], path: Path | None, quality: list[pl.DataFrame]) -> _Operators:
    """Each operator; sums and extremes over operators are left out."""
    names: list[str] = []
    groups: list[str | None] = []
    found: list[Mapping[str, Any]] = []
    odd = 0
    for key, info in _entries(content):
        name, _, group = key.partition("@")
        if name.lower().startswith("total") or _is_extreme(name):
            continue
        if isinstance(info, dict):
            names.append(name)
            groups.append(group or None)
            found.append(info)
        else:
            odd += 1
    if path is not None:
        quality.append(lost(issues.NOT_UNDERSTOOD, path.name, odd, "not a JSON object"))
    return _Operators(_texts("name", names), _texts("group", groups), found)


def _entries(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if "@" not in key and isinstance(value, dict) and any(name in value for name in keys.KINDS):
            for name in keys.KINDS:
                part = value.get(name)
                yield from part.items() if isinstance(part, dict) else ()
        else:
            yield key, value


def _is_extreme(name: str) -> bool:
    """Whether a matrix key such as `allreduce-top1` stands for many operators (docs/formats/outputs.md 9.3)."""
    return name.rpartition("-")[2] in ("top1", "middle", "bottom1", "bottom2", "bottom3", "total")


def _times(ops: _Operators) -> pl.DataFrame:
    times = [_object(info, keys.TIME_INFO) for info in ops.infos]
    return pl.DataFrame([ops.names, ops.groups, *_columns(times, {**keys.START, **keys.TIMES})])


def _packets(ops: _Operators) -> pl.DataFrame:
    """One row per transport that was used and size of packets; the file lists all transports."""
    used = [
        (row, transport, values, _object(values, keys.SIZES))
        for row, info in enumerate(ops.infos)
        for transport, values in _object(info, keys.BANDWIDTH_INFO).items()
        if values != _UNUSED and isinstance(values, dict)
    ]
    used = [part for part in used if part[3] or any(map(part[2].get, keys.PACKETS.values()))]
    measured = pl.DataFrame(
        [
            *ops.at([row for row, *_ in used]),
            _texts("transport", [transport for _, transport, _, _ in used]),
            *_columns([values for _, _, values, _ in used], keys.PACKETS),
        ]
    )
    counted = [pair for *_, sizes in used for pair in (sizes.items() or (_NO_SIZE,))]
    pairs = [value if isinstance(value, list) and len(value) == 2 else (None, None) for _, value in counted]
    # Sizes are keys, thus text; there are few different ones.
    size_of = {size: _number(size) for size in {size for size, _ in counted}}
    per_size = np.repeat(np.arange(len(used)), [len(sizes) or 1 for *_, sizes in used])
    return measured[per_size].with_columns(
        pl.Series("packet_mb", [size_of[size] for size, _ in counted], pl.Float64),
        _numbers("packets", [count for count, _ in pairs]).cast(pl.Int64, strict=False),
        _numbers("packets_ms", [time for _, time in pairs]),
    )


def _links(ops: _Operators) -> pl.DataFrame:
    found = [
        (row, *link.partition("-"), values)
        for row, info in enumerate(ops.infos)
        for link, values in info.items()
        if isinstance(values, dict)
    ]
    found = [link for link in found if _is_rank(link[1]) and _is_rank(link[3])]
    transports = [values.get(keys.TRANSPORT) for *_, values in found]
    return pl.DataFrame(
        [
            *ops.at([row for row, *_ in found]),
            pl.Series("src_rank", [int(source) for _, source, *_ in found], pl.Int64),
            pl.Series("dst_rank", [int(target) for *_, target, _ in found], pl.Int64),
            _texts("transport", [name if isinstance(name, str) else None for name in transports]),
            *_columns([values for *_, values in found], keys.LINK),
        ]
    )


def _columns(objects: Sequence[Mapping[str, Any]], named: Mapping[str, str]) -> list[pl.Series]:
    try:
        rows = list(map(itemgetter(*named.values()), objects))
    except KeyError:
        rows = [tuple(map(values.get, named.values())) for values in objects]
    columns = zip(*rows, strict=True) if rows else ((),) * len(named)
    return [_numbers(name, values) for name, values in zip(named, columns, strict=True)]


def _texts(name: str, values: list[Any]) -> pl.Series:
    texts: pl.Series = pl.Series(name, values, pl.String).cast(TEXT)
    return texts


def _numbers(name: str, values: Sequence[Any]) -> pl.Series:
    if set(map(type, values)) <= {float, int, type(None)}:  # nearly always
        try:
            numbers = np.array(values, np.float64)
        except OverflowError:
            pass
        else:
            numbers[~np.isfinite(numbers)] = np.nan
            return pl.Series(name, numbers, nan_to_null=True)
    return pl.Series(name, [_number(value) for value in values], pl.Float64)


def _object(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return _as_object(parent.get(key))


def _number(value: Any) -> float | None:
    """A number, also when written as text (sizes of packets are keys, thus text); NaN and Infinity count as missing."""
    if isinstance(value, (int, float, str)):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None
    return None


def _places(frames: list[pl.DataFrame], collectives: pl.DataFrame) -> pl.DataFrame:
    """Row of `collectives` of each (name, group): the one of that name, of several the one that starts nearest."""
    times = frames[0].select("name", "group", (pl.col("start_us") * 1000).alias("at_ns"))
    named = pl.concat([times, *(frame.select("name", "group") for frame in frames[1:])], how="diagonal")
    named = named.unique(["name", "group"], keep="first", maintain_order=True)
    there = collectives.select(
        "name", "start_ns", pl.col("group").alias("its_group"), pl.int_range(pl.len(), dtype=pl.Int64).alias("collective")
    )
    other_group = (pl.col("its_group") != pl.col("group")).fill_null(False)
    away = (pl.col("start_ns") - pl.col("at_ns")).abs().fill_null(0.0)
    return (
        named.join(there, on="name", how="left", maintain_order="left_right")
        .with_columns(other_group.alias("other_group"), away.alias("away"))
        .sort("other_group", "away", maintain_order=True)
        .unique(["name", "group"], keep="first", maintain_order=True)
        .select("name", "group", "collective")
    )


def _with_groups(collectives: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    known = (
        places.drop_nulls()
        .unique("collective", keep="first", maintain_order=True)
        .select("collective", pl.col("group").alias("found"))
    )
    numbered = collectives.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("collective"))
    joined = numbered.join(known, on="collective", how="left", maintain_order="left")
    return joined.with_columns(pl.col("group").fill_null(pl.col("found"))).select(collectives.columns)

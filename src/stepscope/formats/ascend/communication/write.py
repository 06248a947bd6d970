# SPDX-License-Identifier: Apache-2.0
"""Writes both files from tables, by step and kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from stepscope.formats.ascend.communication import keys
from stepscope.render.atomic import replacing

Document = dict[str, dict[str, dict[str, Any]]]

_TRANSIT_MS, _TRANSIT_MB = keys.LINK["transit_ms"], keys.LINK["transit_mb"]


def write(document: Document, path: Path) -> list[Path]:
    """Write a document; no file when it is empty."""
    if not document:
        return []
    with replacing(path) as handle:
        handle.write(orjson.dumps(document))
    return [path]


def operators_document(times: pl.DataFrame, packets: pl.DataFrame, transports: Sequence[str]) -> Document:
    """Times and packets of every communication operator, by step and kind, with a total for each kind.

    Args:
        times: table `collective_times` with columns step and kind.
        packets: table `collective_packets`, likewise.
        transports: all that are listed, used or not.
    """
    document: Document = {}
    totals: dict[tuple[str, str], dict[str, Any]] = {}
    used = _packets_by_operator(packets)
    for row in times.iter_rows(named=True):
        lasted = {shown: row[column] or 0 for column, shown in keys.TIMES.items()}
        bandwidth = used.get((row["collective"], row["name"], row["group"]), {})
        info = {
            keys.TIME_INFO: {**_values(row, keys.START), **lasted, **_ratios(lasted)},
            keys.BANDWIDTH_INFO: {transport: bandwidth.get(transport) or _no_packets() for transport in transports},
        }
        step, kind = row["step"], row["kind"]
        place = document.setdefault(step, {name: {} for name in keys.KINDS})
        place[kind][f"{row['name']}@{row['group'] or ''}"] = info
        if (step, kind) not in totals:
            totals[step, kind] = _no_total(transports)
        _add(totals[step, kind], info)
    for (step, kind), total in totals.items():
        lasted = total[keys.TIME_INFO]
        lasted.update(_ratios(lasted))
        document[step][kind][keys.TOTAL] = total
    return document


def matrix_document(tags: pl.DataFrame) -> Document:
    """Fastest, middle and slowest operators and sums for every pair of ranks, by step and kind.

    Args:
        tags: one row per pair and tag, with columns step, kind, operator_type, tag, group, src_rank, dst_rank, those of
            `collective_links`, and op_name: null for sums.
    """
    document: Document = {}
    for row in tags.iter_rows(named=True):
        place = document.setdefault(row["step"], {kind: {} for kind in keys.KINDS})[row["kind"]]
        pair = {keys.TRANSPORT: row["transport"], **_values(row, keys.LINK)}
        if row["op_name"] is not None:
            pair[keys.OP_NAME] = row["op_name"]
        key = f"{row['operator_type']}-{row['tag']}@{row['group'] or ''}"
        place.setdefault(key, {})[f"{row['src_rank']}-{row['dst_rank']}"] = pair
    return document


def _values(row: Mapping[str, Any], named: Mapping[str, str]) -> dict[str, Any]:
    return {shown: row[column] for column, shown in named.items()}


def _packets_by_operator(packets: pl.DataFrame) -> dict[tuple[int | None, str, str | None], dict[str, dict[str, Any]]]:
    found: dict[tuple[int | None, str, str | None], dict[str, dict[str, Any]]] = {}
    for row in packets.iter_rows(named=True):
        operator = found.setdefault((row["collective"], row["name"], row["group"]), {})
        info = operator.get(row["transport"])
        if info is None:
            info = operator[row["transport"]] = {**_values(row, keys.PACKETS), keys.SIZES: {}}
        if row["packet_mb"] is not None:
            info[keys.SIZES][str(row["packet_mb"])] = [row["packets"], row["packets_ms"]]
    return found


def _no_packets() -> dict[str, Any]:
    return {**dict.fromkeys(keys.PACKETS.values(), 0), keys.SIZES: {}}


def _no_total(transports: Sequence[str]) -> dict[str, Any]:
    # No bandwidth in the totals: real files have none (docs/formats/outputs.md 9.2).
    return {
        keys.TIME_INFO: dict.fromkeys(keys.TIMES.values(), 0),
        keys.BANDWIDTH_INFO: {transport: {_TRANSIT_MS: 0, _TRANSIT_MB: 0, keys.SIZES: {}} for transport in transports},
    }


def _add(total: dict[str, Any], info: dict[str, Any]) -> None:
    for key in keys.TIMES.values():
        total[keys.TIME_INFO][key] += info[keys.TIME_INFO][key]
    for transport, part in info[keys.BANDWIDTH_INFO].items():
        whole = total[keys.BANDWIDTH_INFO][transport]
        for key in (_TRANSIT_MS, _TRANSIT_MB):
            whole[key] += part[key] or 0
        for size, (count, time) in part[keys.SIZES].items():
            entry = whole[keys.SIZES].setdefault(size, [0, 0])
            entry[0] += count
            entry[1] += time


def _ratios(times: Mapping[str, Any]) -> dict[str, float]:
    transit = times[_TRANSIT_MS]
    return {shown: _share(times[keys.TIMES[column]], transit) for column, shown in keys.RATIOS.items()}


def _share(part: float, rest: float) -> float:
    return round(part / (part + rest), 4) if part + rest else 0

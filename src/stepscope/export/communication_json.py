# SPDX-License-Identifier: Apache-2.0
"""communication.json and communication_matrix.json (outputs.md 9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import polars as pl

from stepscope.analysis.communication import TRANSPORTS, matrix_tags, of_tables, stepped
from stepscope.render.atomic import replacing
from stepscope.tables import Tables

Document = dict[str, dict[str, dict[str, Any]]]

_KINDS = ("p2p", "collective")
_TIME_KEYS = {
    "elapse_ms": "Elapse Time(ms)",
    "transit_ms": "Transit Time(ms)",
    "wait_ms": "Wait Time(ms)",
    "sync_ms": "Synchronization Time(ms)",
    "idle_ms": "Idle Time(ms)",
}


def write(tables: Tables, folder: Path) -> list[Path]:
    """Write the two files; a file without content is not created."""
    tables = of_tables(tables)
    documents = {"communication.json": communication_json(tables), "communication_matrix.json": communication_matrix_json(tables)}
    written = []
    for name, document in documents.items():
        if not document:
            continue
        with replacing(folder / name) as handle:
            handle.write(orjson.dumps(document))
        written.append(folder / name)
    return written


def communication_json(tables: Tables) -> Document:
    """Times and packets of every communication operator, by step and kind, with a total for each kind."""
    document: Document = {}
    totals: dict[tuple[str, str], dict[str, Any]] = {}
    packets = _packets_by_operator(stepped(tables, "collective_packets"))
    for row in stepped(tables, "collective_times").iter_rows(named=True):
        times = {shown: row[column] or 0 for column, shown in _TIME_KEYS.items()}
        bandwidth = packets.get((row["collective"], row["name"], row["group"]), {})
        info = {
            "Communication Time Info": {"Start Timestamp(us)": row["start_us"], **times, **_ratios(times)},
            "Communication Bandwidth Info": {transport: bandwidth.get(transport) or _no_packets() for transport in TRANSPORTS},
        }
        step, kind = row["step"], row["kind"]
        place = document.setdefault(step, {name: {} for name in _KINDS})
        place[kind][f"{row['name']}@{row['group'] or ''}"] = info
        if (step, kind) not in totals:
            totals[step, kind] = _no_total()
        _add(totals[step, kind], info)
    for (step, kind), total in totals.items():
        times = total["Communication Time Info"]
        times.update(_ratios(times))
        document[step][kind]["Total Op Info"] = total
    return document


def communication_matrix_json(tables: Tables) -> Document:
    """Fastest, middle and slowest operators and sums for every pair of ranks, by step and kind."""
    document: Document = {}
    for row in matrix_tags(stepped(tables, "collective_links")).iter_rows(named=True):
        place = document.setdefault(row["step"], {kind: {} for kind in _KINDS})[row["kind"]]
        pair = {
            "Transport Type": row["transport"],
            "Transit Size(MB)": row["transit_mb"],
            "Transit Time(ms)": row["transit_ms"],
            "Bandwidth(GB/s)": row["bandwidth"],
        }
        if row["op_name"] is not None:
            pair["Op Name"] = row["op_name"]
        key = f"{row['operator_type']}-{row['tag']}@{row['group'] or ''}"
        place.setdefault(key, {})[f"{row['src_rank']}-{row['dst_rank']}"] = pair
    return document


def _packets_by_operator(packets: pl.DataFrame) -> dict[tuple[int | None, str, str | None], dict[str, dict[str, Any]]]:
    found: dict[tuple[int | None, str, str | None], dict[str, dict[str, Any]]] = {}
    for row in packets.iter_rows(named=True):
        operator = found.setdefault((row["collective"], row["name"], row["group"]), {})
        info = operator.get(row["transport"])
        if info is None:
            info = operator[row["transport"]] = {
                "Transit Size(MB)": row["transit_mb"],
                "Transit Time(ms)": row["transit_ms"],
                "Bandwidth(GB/s)": row["bandwidth"],
                "Large Packet Ratio": row["large_packet_ratio"],
                "Size Distribution": {},
            }
        if row["packet_mb"] is not None:
            info["Size Distribution"][str(row["packet_mb"])] = [row["packets"], row["packets_ms"]]
    return found


def _no_packets() -> dict[str, Any]:
    return {"Transit Size(MB)": 0, "Transit Time(ms)": 0, "Bandwidth(GB/s)": 0, "Large Packet Ratio": 0, "Size Distribution": {}}


def _no_total() -> dict[str, Any]:
    # No bandwidth in the totals: real files have none (outputs.md 9.2).
    return {
        "Communication Time Info": dict.fromkeys(_TIME_KEYS.values(), 0),
        "Communication Bandwidth Info": {
            transport: {"Transit Time(ms)": 0, "Transit Size(MB)": 0, "Size Distribution": {}} for transport in TRANSPORTS
        },
    }


def _add(total: dict[str, Any], info: dict[str, Any]) -> None:
    for key in _TIME_KEYS.values():
        total["Communication Time Info"][key] += info["Communication Time Info"][key]
    for transport, part in info["Communication Bandwidth Info"].items():
        whole = total["Communication Bandwidth Info"][transport]
        for key in ("Transit Time(ms)", "Transit Size(MB)"):
            whole[key] += part[key] or 0
        for size, (count, time) in part["Size Distribution"].items():
            entry = whole["Size Distribution"].setdefault(size, [0, 0])
            entry[0] += count
            entry[1] += time


def _ratios(times: dict[str, Any]) -> dict[str, float]:
    transit = times["Transit Time(ms)"]
    return {
        "Wait Time Ratio": _share(times["Wait Time(ms)"], transit),
        "Synchronization Time Ratio": _share(times["Synchronization Time(ms)"], transit),
    }


def _share(part: float, rest: float) -> float:
    return round(part / (part + rest), 4) if part + rest else 0

# SPDX-License-Identifier: Apache-2.0
"""The Communication view: links between ranks, bandwidth by transport, operators over time (docs/reference/viewer.md 4.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from stepscope.analysis.communication.collectives import link_matrix
from stepscope.analysis.communication.workers import collectives_over_time
from stepscope.export.communication_json import communication_json
from stepscope.web.loaded import LoadedCapture
from stepscope.web.parameters import Query
from stepscope.web.problems import bad_parameter, missing

MOST_RANKS = 256
REFERENCE = {"RDMA": 12.5, "HCCS": 18, "PCIE": 20}
KINDS = ("p2p", "collective")  # in the order of communication_matrix.json
_LINK = {
    "src": "src_rank", "dst": "dst_rank", "transport": "transport", "size_mb": "transit_mb", "time_ms": "transit_ms",
    "bandwidth": "bandwidth", "op_name": "op_name",
}  # fmt: skip


def links_of(capture: LoadedCapture) -> pl.DataFrame:
    """Rows of communication_matrix.json, with `op`, their key there: `allreduce-top1@` and the group."""
    return capture.once("communication matrix", lambda: _links(capture))


def _links(capture: LoadedCapture) -> pl.DataFrame:
    op = pl.format("{}-{}@{}", "operator_type", "tag", pl.col("group").cast(pl.String).fill_null(""))
    rows = link_matrix(capture.tables).with_columns(op.alias("op"), pl.col("step", "kind").cast(pl.String))
    return rows.sort(pl.col("kind") != KINDS[0], maintain_order=True)


def matrix(workers: Mapping[str, LoadedCapture], query: Query) -> dict[str, Any]:
    """Links of one step and operator over all workers of the run."""
    rows = pl.concat([links_of(capture).select("step", "op", **_LINK) for capture in workers.values()], how="vertical_relaxed")
    steps = rows["step"].unique(maintain_order=True).to_list()
    if not steps:
        raise missing("communication", "no communication matrix in this run")
    step = query.choice("step", steps)
    rows = rows.filter(pl.col("step") == step)
    ops = rows["op"].unique(maintain_order=True).to_list()
    op = query.choice("op", ops)
    links = rows.filter(pl.col("op") == op).select(*_LINK)
    links = links.with_columns(pl.col("transport", "op_name").cast(pl.String))
    ranks = sorted({*links["src"].to_list(), *links["dst"].to_list()})
    binned = len(ranks) > MOST_RANKS
    if binned:
        links, ranks = _binned(links, ranks)
    return {"steps": steps, "step": step, "ops": ops, "op": op, "ranks": ranks, "binned": binned, "links": links.to_dicts()}


def _binned(links: pl.DataFrame, ranks: list[int]) -> tuple[pl.DataFrame, list[int]]:
    """Neighbouring ranks as one, so that a picture can show them: sizes and times summed."""
    width = -(-len(ranks) // MOST_RANKS)
    place = {rank: ranks[number // width * width] for number, rank in enumerate(ranks)}
    frame = links.with_columns(pl.col("src", "dst").replace_strict(place))
    summed = frame.group_by("src", "dst", "transport", maintain_order=True).agg(pl.col("size_mb", "time_ms").sum())
    bandwidth = pl.when(pl.col("time_ms") > 0).then(pl.col("size_mb") / pl.col("time_ms")).otherwise(0.0)
    return summed.with_columns(bandwidth=bandwidth, op_name=pl.lit(None, pl.String)), sorted(set(place.values()))


def bandwidth(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """Transports of one operator (or of all) with their packets."""
    document = capture.once("communication document", lambda: communication_json(capture.tables))
    if not document:
        raise missing("communication", "no communication operators in this capture")
    step = query.choice("step", list(document))
    parts = document[step]
    ops = list(dict.fromkeys(op for kind in parts.values() for op in kind))
    if not ops:
        raise missing("communication", f"no communication operators in {step}")
    op = query.choice("op", ops, "Total Op Info" if "Total Op Info" in ops else None)
    rows: dict[str, dict[str, Any]] = {}
    for kind in parts.values():
        for transport, info in kind.get(op, {}).get("Communication Bandwidth Info", {}).items():
            _add(
                rows.setdefault(
                    transport, {"Transport Type": transport, "Transit Size(MB)": 0.0, "Transit Time(ms)": 0.0, "packets": {}}
                ),
                info,
            )
    shown = []
    for row in rows.values():
        size, time = row["Transit Size(MB)"], row["Transit Time(ms)"]
        packets = [{"size_mb": float(key), "count": count, "time_ms": ms} for key, (count, ms) in row["packets"].items()]
        shown.append(
            {
                **row, "Bandwidth(GB/s)": size / time if time else 0.0, "Large Packet Ratio": row.get("Large Packet Ratio"),
                "packets": sorted(packets, key=lambda packet: packet["size_mb"]),
            }
        )  # fmt: skip
    return {"steps": list(document), "step": step, "ops": ops, "op": op, "rows": shown, "reference": REFERENCE}


def _add(row: dict[str, Any], info: dict[str, Any]) -> None:
    for key in ("Transit Size(MB)", "Transit Time(ms)"):
        row[key] += info.get(key) or 0
    if info.get("Large Packet Ratio") is not None:
        row["Large Packet Ratio"] = info["Large Packet Ratio"]
    for size, (count, time) in (info.get("Size Distribution") or {}).items():
        known = row["packets"].setdefault(size, [0, 0.0])
        known[0] += count
        known[1] += time


def strip(workers: Mapping[str, LoadedCapture], query: Query) -> dict[str, Any]:
    """Communication operators of all workers over time, on the clock of the hosts."""
    limit = query.number("limit", 2000, least=1, most=20_000)
    rows = collectives_over_time({worker: capture.tables for worker, capture in workers.items()})
    if not rows.height:
        raise missing("communication", "no communication operators in this run")
    low, high = query.whole("from"), query.whole("to")
    if low is not None and high is not None and low > high:
        raise bad_parameter("from", "not after to")
    if low is not None:
        rows = rows.filter(pl.col("start_ns") >= low)
    if high is not None:
        rows = rows.filter(pl.col("start_ns") < high)
    shown = rows if rows.height <= limit else rows[np.linspace(0, rows.height - 1, limit).astype(np.int64)]
    return {
        "workers": list(workers),
        "rows": shown.with_columns(pl.col("start_ns").cast(pl.String)).to_dicts(),
        "thinned": rows.height > limit,
    }

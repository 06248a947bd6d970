# SPDX-License-Identifier: Apache-2.0
"""The documents of text files as tables of databases, and back."""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.export.cluster.ranks import DB, Document, RankFiles
from stepscope.formats.ascend import step_trace_time
from stepscope.formats.ascend.communication import keys
from stepscope.formats.ascend.db.schema import ANALYSIS_DB
from stepscope.render.sqlite_table import DbTable

FIGURES = tuple(item.title for item in step_trace_time.VALUES)

_TYPES: dict[str, Any] = {"T": pl.String, "N": pl.Float64, "R": pl.Float64, "K": pl.Int64, "I": pl.Int64}
_TIME_KEYS = {
    "start_timestamp": keys.START["start_us"],
    "elapse_time": keys.TIMES["elapse_ms"],
    "transit_time": keys.TIMES["transit_ms"],
    "wait_time": keys.TIMES["wait_ms"],
    "synchronization_time": keys.TIMES["sync_ms"],
    "idle_time": keys.TIMES["idle_ms"],
}
_BAND_KEYS = {
    "transit_size": keys.PACKETS["transit_mb"],
    "transit_time": keys.PACKETS["transit_ms"],
    "bandwidth": keys.PACKETS["bandwidth"],
    "large_packet_ratio": keys.PACKETS["large_packet_ratio"],
}
_LINK_KEYS = {
    "transport_type": keys.TRANSPORT,
    "transit_size": keys.LINK["transit_mb"],
    "transit_time": keys.LINK["transit_ms"],
    "bandwidth": keys.LINK["bandwidth"],
    "op_name": keys.OP_NAME,
}


def schema_of(table: DbTable) -> dict[str, Any]:
    return {column.name: _TYPES[column.kind] for column in table.columns}


def table_of(files: RankFiles, name: str) -> pl.DataFrame:
    """A table of analysis.db, whichever form the capture has."""
    if files.form == DB:
        return files.rows.get(name, pl.DataFrame(schema=schema_of(ANALYSIS_DB[name])))
    return _TABLES[name](files)


def join_rows(first: RankFiles, other: RankFiles) -> None:
    """Add the tables of another capture of the rank, but for steps that the first has."""
    for name, frame in other.rows.items():
        own = first.rows.get(name)
        first.rows[name] = frame if own is None else pl.concat([own, frame.filter(~pl.col("step").is_in(own["step"].implode()))])


def _operators(document: Document) -> list[tuple[str, str, str, str, Any]]:
    """Step, kind, operator and group of every entry of a document but the sums."""
    found = []
    for step, kinds in document.items():
        for kind, operators in kinds.items() if isinstance(kinds, dict) else ():
            for name, entry in operators.items() if isinstance(operators, dict) else ():
                if not name.startswith("Total"):
                    operator, _, group = name.partition("@")
                    found.append((step, kind, operator, group, entry))
    return found


def _times(files: RankFiles) -> pl.DataFrame:
    rows = []
    for step, kind, operator, group, entry in _operators(files.communication):
        times = entry.get(keys.TIME_INFO, {})
        rows.append((operator, group, *(times.get(key, 0) for key in _TIME_KEYS.values()), step, kind))
    return pl.DataFrame(rows, schema=schema_of(ANALYSIS_DB["CommAnalyzerTime"]), orient="row", strict=False)


def _bandwidths(files: RankFiles) -> pl.DataFrame:
    rows = []
    for step, kind, operator, group, entry in _operators(files.communication):
        for transport, figures in entry.get(keys.BANDWIDTH_INFO, {}).items():
            own = [figures.get(key, 0) for key in _BAND_KEYS.values()]
            for size, (count, lasted) in figures.get(keys.SIZES, {}).items():
                rows.append((operator, group, transport, *own, float(size), count, lasted, step, kind))
    return pl.DataFrame(rows, schema=schema_of(ANALYSIS_DB["CommAnalyzerBandwidth"]), orient="row", strict=False)


def _links(files: RankFiles) -> pl.DataFrame:
    rows = []
    for step, kind, operator, group, entry in _operators(files.matrix):
        for pair, figures in entry.items():
            source, _, target = pair.partition("-")
            transport, size, lasted, speed, name = (figures.get(key) for key in _LINK_KEYS.values())
            rows.append((operator, group, source, target, transport, size, lasted, speed, step, kind, name))
    return pl.DataFrame(rows, schema=schema_of(ANALYSIS_DB["CommAnalyzerMatrix"]), orient="row", strict=False)


_TABLES = {"CommAnalyzerTime": _times, "CommAnalyzerBandwidth": _bandwidths, "CommAnalyzerMatrix": _links}


def communication_of(rows: dict[str, pl.DataFrame]) -> Document:
    """communication.json of the tables of a database; the ratios are not in them."""
    document: Document = {}
    bands: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows["CommAnalyzerBandwidth"].iter_rows(named=True) if "CommAnalyzerBandwidth" in rows else ():
        of_call = bands.setdefault((row["step"], row["type"], row["hccl_op_name"], row["group_name"]), {})
        figures = of_call.setdefault(
            row["transport_type"], {**{key: row[name] for name, key in _BAND_KEYS.items()}, keys.SIZES: {}}
        )
        figures[keys.SIZES][str(row["package_size"])] = [row["count"], row["total_duration"]]
    for row in rows["CommAnalyzerTime"].iter_rows(named=True) if "CommAnalyzerTime" in rows else ():
        key = (row["step"], row["type"], row["hccl_op_name"], row["group_name"])
        document.setdefault(row["step"], {}).setdefault(row["type"], {})[f"{row['hccl_op_name']}@{row['group_name']}"] = {
            keys.TIME_INFO: {shown: row[name] for name, shown in _TIME_KEYS.items()},
            keys.BANDWIDTH_INFO: bands.get(key, {}),
        }
    return document


def matrix_of(rows: dict[str, pl.DataFrame]) -> Document:
    document: Document = {}
    for row in rows["CommAnalyzerMatrix"].iter_rows(named=True) if "CommAnalyzerMatrix" in rows else ():
        links = document.setdefault(row["step"], {}).setdefault(row["type"], {})
        pairs = links.setdefault(f"{row['hccl_op_name']}@{row['group_name']}", {})
        pairs.setdefault(
            f"{row['src_rank']}-{row['dst_rank']}",
            {shown: row[name] for name, shown in _LINK_KEYS.items() if row[name] is not None},
        )
    return document

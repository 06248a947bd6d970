# SPDX-License-Identifier: Apache-2.0
"""cluster_analysis.db: times of steps, communication and its matrix, groups, hosts; and what we know beyond."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope.export.cluster.ranks import RankFiles
from stepscope.export.cluster.text import COLLECTIVE, P2P, stages_of, step_rows
from stepscope.formats.ascend.communication import keys
from stepscope.formats.cann.write.hash import text_hash
from stepscope.render.sqlite_file import new_database
from stepscope.render.sqlite_table import DbColumn, DbTable

FILE = "cluster_analysis.db"


def table(name: str, columns: str) -> DbTable:
    """A table from its columns, each with the letter of its kind."""
    pairs = (column.split(":") for column in columns.split())
    return DbTable(name, tuple(DbColumn(column, kind) for column, kind in pairs))


_STEPS = table(
    "ClusterStepTraceTime",
    "step:T type:T index:T computing:N communication_not_overlapped:N overlapped:N communication:N free:N stage:N bubble:N "
    "communication_not_overlapped_and_exclude_receive:N preparing:N dp_index:I pp_index:I tp_index:I",
)
_TIMES = table(
    "ClusterCommunicationTime",
    "step:T rank_id:I hccl_op_name:T group_name:T start_timestamp:R elapsed_time:R transit_time:R wait_time:R "
    "synchronization_time:R idle_time:R synchronization_time_ratio:R wait_time_ratio:R",
)
_BANDWIDTH = table(
    "ClusterCommunicationBandwidth",
    "step:T rank_id:I hccl_op_name:T group_name:T band_type:T transit_size:R transit_time:R bandwidth:R large_packet_ratio:N "
    "package_size:R count:I total_duration:R",
)
_MATRIX = table(
    "ClusterCommunicationMatrix",
    "step:T hccl_op_name:T group_name:T src_rank:R dst_rank:R transport_type:T op_name:T transit_size:R transit_time:R bandwidth:R",
)
_GROUPS = table("CommunicationGroupMapping", "type:T rank_set:T group_name:T group_id:T pg_name:T")
_BASE = table("ClusterBaseInfo", "key:T value:T")
_HOSTS = table("HostInfo", "hostUid:T hostName:T")
_DEVICES = table("RankDeviceMap", "rankId:I deviceId:I hostUid:T profilePath:T")
TABLES = {one.name: one for one in (_STEPS, _TIMES, _BANDWIDTH, _MATRIX, _GROUPS, _BASE, _HOSTS, _DEVICES)}


def write_database(ranks: Sequence[RankFiles], folder: Path, more: Mapping[DbTable, pl.DataFrame] | None = None) -> list[Path]:
    """Write the database; the folder exists.

    Args:
        more: further tables.
    """
    frames = cluster_tables(ranks)
    if not any(frame.height for frame in frames.values()):
        return []
    with new_database(folder / FILE) as file:
        for name, frame in frames.items():
            file.fill(TABLES[name], frame)
        for one, frame in (more or {}).items():
            file.fill(one, frame)
    return [folder / FILE]


def cluster_tables(ranks: Sequence[RankFiles]) -> dict[str, pl.DataFrame]:
    """The rows of each table."""
    times, bandwidth, links = (_of_all(ranks, name) for name in ("CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix"))
    groups = _groups(ranks, times)
    hosts = {files.host[0]: files.host[1] for files in ranks if files.host and files.devices}
    devices = sorted([*device, files.host[0], files.path] for files in ranks if files.host for device in files.devices)
    return {
        "CommunicationGroupMapping": groups,
        "ClusterCommunicationTime": _times(times, groups) if groups.height else times.clear(),
        "ClusterCommunicationBandwidth": _bandwidth(bandwidth, groups) if groups.height else bandwidth.clear(),
        "ClusterCommunicationMatrix": _matrix(ranks, links),
        "ClusterStepTraceTime": _steps(ranks, groups),
        "ClusterBaseInfo": _base(ranks),
        "HostInfo": pl.DataFrame(list(hosts.items()), schema=["hostUid", "hostName"], orient="row"),
        "RankDeviceMap": pl.DataFrame(devices, schema=list(_DEVICES.names), orient="row"),
    }


def _of_all(ranks: Sequence[RankFiles], name: str) -> pl.DataFrame:
    parts = [files.table(name).with_columns(rank_id=pl.lit(files.rank, pl.Int64)) for files in ranks]
    return pl.concat(parts) if parts else pl.DataFrame()


def _groups(ranks: Sequence[RankFiles], times: pl.DataFrame) -> pl.DataFrame:
    """One row per kind and group; the members as the metadata has them, else the ranks that were seen."""
    schema = dict.fromkeys(_GROUPS.names, pl.String)
    if not times.height:
        return pl.DataFrame(schema=schema)
    lower = pl.col("hccl_op_name").str.to_lowercase()
    p2p = pl.any_horizontal(lower.str.contains(word, literal=True) for word in ("send", "receive", "recv"))
    seen = (
        times.drop_nulls(["hccl_op_name", "group_name"])
        .group_by(pl.when(p2p).then(pl.lit(P2P)).otherwise(pl.lit(COLLECTIVE)).alias("type"), "group_name")
        .agg(pl.col("rank_id").unique().sort())
        .sort("type", "group_name")
    )
    known: dict[str, list[tuple[str, str, str]]] = {}
    for files in ranks:
        for full_name, entry in files.groups.items():
            about = entry if isinstance(entry, dict) else {}
            row = (full_name, str(about.get("group_name", "")), _set_text(sorted(about.get("global_ranks") or [])))
            rows = known.setdefault(str(text_hash(full_name)), [])
            if row not in rows:
                rows.append(row)
    listed = [
        (kind, members if members not in ("", "()") else _set_text(seen_ranks), group, full_name, called)
        for kind, group, seen_ranks in seen.iter_rows()
        for full_name, called, members in known.get(group, [("", "", "")])
    ]
    return pl.DataFrame(listed, schema=schema, orient="row")


def _set_text(ranks: Sequence[int]) -> str:
    return f"({','.join(map(str, ranks))})"


def _repeated(rows: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Rows as often as their group has different members listed: sums over them count that often too."""
    sets = groups.select("group_name", "rank_set").unique(maintain_order=True)
    return rows.join(sets, on="group_name", how="left", maintain_order="left")


def _times(rows: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    sums = ("elapse_time", "transit_time", "wait_time", "synchronization_time", "idle_time")
    by = ["step", "rank_id", "group_name"]
    total = _repeated(rows, groups).drop_nulls(by).group_by(by).agg(pl.col(sums).sum()).sort(by)
    total = total.with_columns(
        hccl_op_name=pl.lit(keys.TOTAL),
        start_timestamp=pl.lit(0.0),
        synchronization_time_ratio=_share(total, "synchronization_time"),
        wait_time_ratio=_share(total, "wait_time"),
    )
    # For single operators msprof-analyze leaves the shares at 0.
    own = rows.with_columns(synchronization_time_ratio=pl.lit(0.0), wait_time_ratio=pl.lit(0.0))
    both = pl.concat([own, total], how="diagonal").rename({"elapse_time": "elapsed_time"})
    return both.select(_TIMES.names)


def _share(total: pl.DataFrame, name: str) -> pl.Series:
    part = total[name].to_numpy()
    return pl.Series(_quotients(part, part + total["transit_time"].to_numpy()))


def _quotients(part: Any, whole: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.round(np.where(whole == 0, 0.0, part / np.where(whole == 0, 1, whole)), 4)


def _bandwidth(rows: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    by = ["group_name", "step", "rank_id", "transport_type"]
    repeated = _repeated(rows, groups).drop_nulls(by)
    # An operator has a row per packet size; its sums are the same in each and count once.
    once = repeated.unique([*by, "hccl_op_name"], keep="first", maintain_order=True)
    sums = once.group_by(by).agg(pl.col("transit_size", "transit_time").sum())
    total = repeated.drop_nulls("package_size").group_by([*by, "package_size"]).agg(pl.col("count", "total_duration").sum())
    total = total.join(sums, on=by).sort([*by, "package_size"])
    speed = _quotients(total["transit_size"].to_numpy(), total["transit_time"].to_numpy())
    total = total.with_columns(
        hccl_op_name=pl.lit(keys.TOTAL), large_packet_ratio=pl.lit(0.0), bandwidth=pl.Series(speed, dtype=pl.Float64)
    )
    both = pl.concat([rows, total], how="diagonal").rename({"transport_type": "band_type"})
    return both.select(_BANDWIDTH.names)


def _matrix(ranks: Sequence[RankFiles], rows: pl.DataFrame) -> pl.DataFrame:
    if not rows.height:
        return rows.clear()
    places = _world_ranks(ranks, rows)
    is_p2p = pl.col("type").eq_missing(pl.lit(P2P)).alias("p2p")
    by = ["step", "hccl_op_name", "group_name", "src_rank", "dst_rank"]
    merged = rows.drop_nulls(by).group_by(is_p2p, *by, maintain_order=True).agg(*_LINK_SUMS)
    for name in ("src_rank", "dst_rank"):
        number = places.rename({"local": name, "rank": "number"})
        merged = merged.join(number, on=["group_name", name], how="inner", maintain_order="left")
        merged = merged.with_columns(pl.col("number").cast(pl.Float64).alias(name)).drop("number")
    lasted = pl.col("transit_time")
    merged = merged.with_columns(bandwidth=pl.when(lasted != 0).then(pl.col("transit_size") / lasted).otherwise(0.0))
    total = (
        merged.filter(pl.col("hccl_op_name").str.contains("total", literal=True))
        .group_by("group_name", "step", "src_rank", "dst_rank", maintain_order=True)
        .agg(*_LINK_SUMS)
        .with_columns(hccl_op_name=pl.lit(keys.TOTAL), bandwidth=(pl.col("transit_size") / lasted).fill_nan(None))
    )
    return pl.concat([merged, total], how="diagonal").select(_MATRIX.names)


_LINK_SUMS = (
    pl.col("transport_type", "op_name").drop_nulls().first(),
    pl.col("transit_size", "transit_time").sum(),
)


def _world_ranks(ranks: Sequence[RankFiles], rows: pl.DataFrame) -> pl.DataFrame:
    """Rank of the run by group and rank in the group, from the metadata, else from links of a rank with itself."""
    found: dict[tuple[str, str], int] = {}
    for files in ranks:
        for full_name, entry in files.groups.items():
            members = entry.get("global_ranks") if isinstance(entry, dict) else None
            if isinstance(members, list) and members:
                group = str(text_hash(full_name))
                found.update(((group, str(place)), rank) for place, rank in enumerate(sorted(members)))
    own = rows.filter(pl.col("src_rank") == pl.col("dst_rank")).select("group_name", "src_rank", "rank_id")
    for group, local, rank in own.unique(maintain_order=True).iter_rows():
        found.setdefault((group, local), rank)
    schema = {"group_name": pl.String, "local": pl.String, "rank": pl.Int64}
    return pl.DataFrame([(*key, rank) for key, rank in found.items()], schema=schema, orient="row")


def _steps(ranks: Sequence[RankFiles], groups: pl.DataFrame) -> pl.DataFrame:
    listed = [
        {**row, "rank_set": [int(one) for one in row["rank_set"].strip("()").split(",") if one]}
        for row in groups.iter_rows(named=True)
    ]
    _, rows = step_rows(ranks, stages_of(listed))
    width = len(_STEPS.names)
    texts = [
        [row[0], row[1], str(row[2]) if isinstance(row[2], int) else _set_text(row[2]), *row[3:], *[0] * (width - len(row))][:width]
        for row in rows
    ]
    indices = dict.fromkeys(_STEPS.names[-3:], pl.String)
    schema = {**dict.fromkeys(_STEPS.names[:3], pl.String), **dict.fromkeys(_STEPS.names[3:-3], pl.Float64), **indices}
    shaped = [[*row[:-3], *map(str, row[-3:])] for row in texts]
    return pl.DataFrame(shaped, schema=schema, orient="row", strict=False)


def _base(ranks: Sequence[RankFiles]) -> pl.DataFrame:
    for files in ranks:
        arguments = files.metadata.get("distributed_args")
        if isinstance(arguments, dict) and arguments:
            content = json.dumps({key: value for key, value in arguments.items() if key != "rank"})
            return pl.DataFrame({"key": ["distributed_args"], "value": [content]})
    return pl.DataFrame(schema=dict.fromkeys(_BASE.names, pl.String))

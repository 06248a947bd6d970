# SPDX-License-Identifier: Apache-2.0
"""What the link-level tasks of a communication operator add up to: time, packets, traffic between ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.tables import ALL_TABLES

# docs/formats/outputs.md 9.2, docs/formats/enums.md 3: a packet is large when it is over the limit of its transport.
LARGE_PACKET_MB = {"RDMA": 0.5, "HCCS": 32.0, "PCIE": 32.0, "SIO": 32.0}
TRANSPORTS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")

_BYTES_PER_MB = 1e6
_NS_PER_MS = 1e6
_PLACE = ["collective", "plane", "row"]  # the vendor lists links and packet sizes plane by plane
_COPIES = ("Memcpy", "Reduce_Inline")


def times(collectives: pl.DataFrame, transfers: pl.DataFrame) -> pl.DataFrame:
    """Table `collective_times` from `transfers`; operators without tasks are left out.

    Transit, wait and synchronization are those of one plane, the master plane: the one whose tasks say so,
    else plane 1, else the lowest. Only a plane that says so also gives start and elapse (docs/formats/outputs.md 9.1).
    """
    tasks, blocks = _tasks(collectives, transfers)
    master = _master_planes(tasks)
    on_master = ["collective", "plane"]
    mine = tasks.join(master.select(on_master), on=on_master, how="semi").filter(~pl.col("in_block"))
    moves = pl.concat([
        mine.filter("transit").select("collective", "row", "ms"),
        blocks.join(master.select(on_master), on=on_master, how="semi").select("collective", "row", "ms"),
    ])  # fmt: skip
    transit = moves.group_by("collective").agg(pl.col("ms").sum().alias("transit_ms"), pl.col("row").min().alias("first_move"))
    waits = mine.filter(pl.col("task_type") == "Notify_Wait").join(transit, on="collective", how="left")
    early = (pl.col("row") < pl.col("first_move")).fill_null(True)
    wait = waits.group_by("collective").agg(pl.col("ms").sum().alias("wait_ms"), pl.col("ms").filter(early).sum().alias("sync_ms"))
    with_master = tasks.join(master.select("collective", pl.col("plane").alias("master"), "is_known"), on="collective", how="left")
    shown = with_master.filter(~pl.col("is_known") | (pl.col("plane") == pl.col("master")))
    first = shown.group_by("collective").agg(pl.col("start_ns").min().alias("first_ns"), pl.col("is_known").first())
    since = _divided(pl.col("start_ns") - pl.col("first_ns"), _NS_PER_MS)
    ends = (
        shown.drop("is_known")
        .join(first, on="collective", how="left")
        .select("collective", (since + pl.col("ms")).alias("elapse_ms"))
    )
    extent = first.join(ends.group_by("collective").agg(pl.col("elapse_ms").max()), on="collective", how="left")
    frame = (
        _named(extent, collectives)
        .join(transit, on="collective", how="left")
        .join(wait, on="collective", how="left")
        .with_columns(pl.col("transit_ms", "wait_ms", "sync_ms").fill_null(0.0))
        .with_columns(
            # The tasks of database captures went through another clock conversion than their operator.
            _divided(pl.when("is_known").then("first_ns").otherwise("op_start_ns"), 1000).alias("start_us"),
            (pl.col("elapse_ms") - pl.col("transit_ms") - pl.col("wait_ms")).alias("idle_ms"),
        )
        .sort("collective")
    )
    return ALL_TABLES["collective_times"].conform(frame)


def packets(collectives: pl.DataFrame, transfers: pl.DataFrame) -> pl.DataFrame:
    """Table `collective_packets` from `transfers`: all planes, by class of link and packet size (docs/formats/outputs.md 9.2).

    The row SDMA is the sum of HCCS, PCIE, SIO and other SDMA packets, without distribution.
    """
    tasks, blocks = _tasks(collectives, transfers)
    link = pl.col("link")
    name = (
        pl.when(link.is_in(["HCCS", "HCCS_SW"])).then(pl.lit("HCCS"))
        .when(link == "PCIE").then(pl.lit("PCIE"))
        .when(link == "SIO").then(pl.lit("SIO"))
        .otherwise(pl.lit("SDMA"))
    )  # fmt: skip
    moved = pl.concat([
        tasks.filter(pl.col("transit") & ~pl.col("in_block")).select(*_PLACE, name.alias("transport"), "bytes", "ms"),
        blocks.select(*_PLACE, pl.lit("RDMA").alias("transport"), "bytes", "ms"),
    ]).sort(_PLACE)  # fmt: skip
    by_class = ["collective", "transport"]
    sizes = (
        moved.filter(pl.col("transport") != "SDMA")
        .group_by([*by_class, "bytes"], maintain_order=True)
        .agg(pl.len().alias("packets"), pl.col("ms").sum().alias("packets_ms"))
        .with_columns(_divided(pl.col("bytes"), _BYTES_PER_MB).alias("packet_mb"))
        .with_columns((pl.col("packet_mb") > pl.col("transport").replace_strict(LARGE_PACKET_MB)).alias("large"))
    )
    over = pl.col("packets").filter("large").sum().over(by_class)
    ratio = (over / pl.col("packets").sum().over(by_class)).round(4)
    totals = (
        pl.concat([
            moved.filter(pl.col("transport") != "SDMA"),
            moved.filter(pl.col("transport") != "RDMA").with_columns(transport=pl.lit("SDMA")),
        ])
        .group_by(by_class)
        .agg(pl.col("bytes").sum(), pl.col("ms").sum().alias("transit_ms"))
        .select(*by_class, _divided(pl.col("bytes"), _BYTES_PER_MB).alias("transit_mb"), "transit_ms")
        .with_columns(bandwidth())
    )  # fmt: skip
    order = pl.col("transport").replace_strict({name: place for place, name in enumerate(TRANSPORTS)}, return_dtype=pl.Int8)
    frame = (
        totals.join(sizes.with_columns(ratio.alias("large_packet_ratio")), on=by_class, how="left", maintain_order="left_right")
        .with_columns(pl.col("large_packet_ratio").fill_null(0.0))
        .sort("collective", order, maintain_order=True)
    )
    return ALL_TABLES["collective_packets"].conform(_named(frame, collectives))


def links(collectives: pl.DataFrame, transfers: pl.DataFrame) -> pl.DataFrame:
    """Table `collective_links` from `transfers`: all planes, copies inside a chip included (docs/formats/outputs.md 9.3)."""
    tasks, blocks = _tasks(collectives, transfers)
    link = pl.col("link")
    name = (
        pl.when(link == "ON_CHIP").then(pl.lit("LOCAL"))
        .when(link == "HCCS_SW").then(pl.lit("HCCS"))
        .otherwise(link.cast(pl.String))
    )  # fmt: skip
    ends = ["src_rank", "dst_rank"]
    frame = (
        pl.concat([
            tasks.filter(pl.col("copy") & ~pl.col("in_block")).select(*_PLACE, *ends, name.alias("transport"), "bytes", "ms"),
            blocks.select(*_PLACE, *ends, pl.lit("RDMA").alias("transport"), "bytes", "ms"),
        ])
        .filter(pl.col("src_rank").is_not_null())
        .with_columns(pl.coalesce("dst_rank", "src_rank").alias("dst_rank"))
        .sort(_PLACE)
        .group_by(["collective", *ends], maintain_order=True)
        .agg(
            pl.col("transport").first(),
            pl.col("bytes").sum(),
            pl.col("ms").sum().alias("transit_ms"),
        )
        .with_columns(_divided(pl.col("bytes"), _BYTES_PER_MB).alias("transit_mb"))
        .with_columns(bandwidth())
    )  # fmt: skip
    return ALL_TABLES["collective_links"].conform(_named(frame, collectives))


def _divided(column: pl.Expr, divisor: float) -> pl.Expr:
    # Polars multiplies by the reciprocal of a constant, which shows in the last digit: 8290304 / 1e6 gives 8.290303999999999.
    return column.map_batches(lambda values: pl.Series(values.to_numpy() / divisor), return_dtype=pl.Float64)


def bandwidth() -> pl.Expr:
    """GB/s of a size in MB and a time in ms; 0 when nothing took time."""
    moving = pl.col("transit_ms") > 0
    return pl.when(moving).then((pl.col("transit_mb") / pl.col("transit_ms")).round(4)).otherwise(0.0).alias("bandwidth")


def _named(frame: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    known = collectives.select(
        pl.int_range(pl.len()).alias("collective"),
        "name",
        pl.coalesce("group", "group_name").alias("group"),
        pl.col("start_ns").alias("op_start_ns"),
    )
    return frame.join(known, on="collective", how="left", maintain_order="left")


def _master_planes(tasks: pl.DataFrame) -> pl.DataFrame:
    """Plane that stands for each operator, and whether the source names it (`is_known`) or we assume it."""
    known = tasks.filter(pl.col("is_master")).unique("collective", keep="first", maintain_order=True)
    assumed = (
        tasks.select("collective", "plane")
        .unique()
        .with_columns((pl.col("plane") != 1).alias("not_one"))
        .sort("collective", "not_one", "plane")
        .unique("collective", keep="first", maintain_order=True)
        .join(known, on="collective", how="anti")
    )
    return pl.concat([
        known.select("collective", "plane", pl.lit(True).alias("is_known")),
        assumed.select("collective", "plane", pl.lit(False).alias("is_known")),
    ])  # fmt: skip


def _tasks(collectives: pl.DataFrame, transfers: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tasks of known operators in time order, and the RDMA blocks among them."""
    link = pl.col("link")
    copy = (pl.col("task_type").is_in(_COPIES) & (pl.col("transport") == "SDMA")).fill_null(False)
    tasks = (
        transfers.filter(pl.col("collective").is_not_null())
        .select(
            "collective", "start_ns", "end_ns", "task_type", "link", "src_rank", "dst_rank", "is_master",
            pl.col("plane").fill_null(0),
            pl.col("bytes").fill_null(0),
            _divided(pl.coalesce("duration_ns", pl.col("end_ns") - pl.col("start_ns")), _NS_PER_MS).alias("ms"),
            copy.alias("copy"),
            (copy & link.ne_missing(pl.lit("ON_CHIP", dtype=pl.Categorical))).alias("transit"),
            (pl.col("rdma_type") == "RDMA_SEND_PAYLOAD").fill_null(False).alias("payload"),
        )
        .sort("collective", "start_ns", maintain_order=True)
        .with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
    )  # fmt: skip
    blocks, covered = _rdma_blocks(tasks, collectives)
    return tasks.with_columns(pl.Series("in_block", covered)), blocks


def _rdma_blocks(tasks: pl.DataFrame, collectives: pl.DataFrame) -> tuple[pl.DataFrame, npt.NDArray[np.bool_]]:
    """One row per RDMA transmission, and which tasks are part of one.

    A transmission is a run of payload tasks of one plane plus the handshake tasks after it: 2 for send and
    receive, 4 for the others; one cut off by the end of the plane does not count (docs/formats/outputs.md 9.1).
    """
    covered = np.zeros(tasks.height, dtype=bool)
    kept = ["row", "collective", "plane", "src_rank", "dst_rank"]
    if not tasks["payload"].any():
        return tasks.select(*kept, "bytes", "ms").clear(), covered
    lanes = tasks.sort("collective", "plane", "row")
    row = lanes["row"].to_numpy()
    payload = lanes["payload"].to_numpy()
    lane = lanes.select(pl.struct("collective", "plane").rle_id()).to_series().to_numpy()
    name = collectives["name"].cast(pl.String).str.to_lowercase().gather(lanes["collective"])
    handshake = np.where(name.str.contains("send|receive").fill_null(False).to_numpy(), 2, 4)
    start, end = lanes["start_ns"].to_numpy(), lanes["end_ns"].to_numpy()
    size = np.concatenate([[0], np.cumsum(lanes["bytes"].to_numpy())])

    edge = np.flatnonzero(
        np.diff(np.concatenate([[False], payload, [False]])) | np.concatenate([[True], np.diff(lane) != 0, [True]])
    )
    firsts, lasts = edge[:-1], edge[1:]
    runs = payload[firsts]
    lane_end = np.searchsorted(lane, lane, side="right")
    found, free_from = [], 0
    # Truly sequential: where a block ends decides where the next may start. One turn per run of payloads, not per task.
    for first, last in zip(firsts[runs].tolist(), lasts[runs].tolist(), strict=True):
        begin = max(first, free_from)
        stop = last + int(handshake[first])
        if begin < last and stop <= lane_end[first]:
            found.append((begin, last, stop))
            covered[row[begin:stop]] = True
            free_from = stop
    begin_at, last_at, stop_at = (
        np.array(column, dtype=np.int64) for column in (zip(*found, strict=True) if found else ([], [], []))
    )
    blocks = lanes.select(kept)[begin_at].with_columns(
        pl.Series("bytes", size[last_at] - size[begin_at]),
        pl.Series("ms", (end[stop_at - 1] - start[begin_at]) / _NS_PER_MS),
    )
    return blocks, covered

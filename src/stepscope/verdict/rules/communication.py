# SPDX-License-Identifier: Apache-2.0
"""Rules about communication between ranks, as one rank sees it."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
import polars as pl

from stepscope.analysis.partition import names
from stepscope.analysis.partition.model import COMMUNICATION
from stepscope.analysis.partition.spans import Spans, minus, spans_of
from stepscope.verdict.case import Case, Draft
from stepscope.verdict.finding import CannotTell, Evidence
from stepscope.verdict.rules.device import MATMUL

WAIT = "(?i)notify.?wait"
PAYLOAD = "(?i)memcpy|reduce|rdmasend|sdma"


def exposed(case: Case) -> Iterator[Draft]:
    """Waiting for other ranks, and what is left of exposed communication."""
    case.need_device()
    whole = case.parts.sum_ns("communication")
    if not case.model.busy[COMMUNICATION].start.size:
        raise CannotTell("communication")
    waited = 0
    if case.tables.transfers.height:
        waited = yield from _peer_wait(case, whole)
    rest = max(whole - waited, 0)
    mask = (case.model.tasks["kind"] == COMMUNICATION).to_numpy()
    upper = min(rest, _could_hide(case))
    saved, how = case.saved_without_tasks(mask)
    longest = _longest(case, mask)
    yield Draft(
        "exposed-communication",
        min(saved, upper),
        "high",
        how,
        bound="upper",
        upper_ns=upper,
        evidence=longest,
        where=case.places(case.model.tasks["op"].filter(pl.Series(mask)), case.exclusive_by_task[mask]),
        params={"share": case.share(whole), "exposed_ms": whole / case.count / 1e6},
        duration=case.duration_without(mask) if case.schedule is not None else None,
        replayed_ns=max(saved - waited, 0) if how == "replay" else None,
    )


def _could_hide(case: Case) -> int:
    """Computing that collectives could run behind: what comes before the first one of a step had nothing to send yet."""
    computing, spans = case.model.busy[0], case.model.busy[COMMUNICATION]
    begin, end = case.model.windows[:-1], case.model.windows[1:]
    # The first moment of communication in each window; a window without any has nothing to hide.
    place = np.searchsorted(spans.end, begin, side="right")
    first = np.where(place < spans.start.size, spans.start[np.minimum(place, spans.start.size - 1)], end)
    return int(computing.within(np.clip(first, begin, end), end).sum())


def _longest(case: Case, mask: np.typing.NDArray[np.bool_]) -> tuple[Evidence, ...]:
    rows = case.model.tasks.with_columns(ns=pl.Series(case.exclusive_by_task)).filter(pl.Series(mask)).sort("ns", descending=True)
    if not rows.height:
        return ()
    table = ("kernels", "collectives")[rows["table"][0]]
    return case.rows_of(table, rows.filter(pl.col("table") == rows["table"][0])["row"])


def _peer_wait(case: Case, exposed_ns: int) -> Generator[Draft, None, int]:
    """A wait on any plane counts: the vendor's own figure looks at one plane, and a late rank shows on its plane only."""
    transfers = case.tables.transfers.with_row_index("row").filter(pl.col("device") == case.model.device)
    kind = pl.col("task_type").cast(pl.String)
    waits, payload = transfers.filter(kind.str.contains(WAIT)), transfers.filter(kind.str.contains(PAYLOAD))
    if not waits.height:
        return 0
    idle = minus(minus(spans_of(waits), spans_of(payload)), case.model.busy[0])
    waited = min(_inside(case, idle), exposed_ns)
    late = (
        waits.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
        .group_by("dst_rank")
        .agg(pl.col("ns").sum())
        .drop_nulls()
        .sort("ns", "dst_rank", descending=[True, False])
    )
    rank = int(late["dst_rank"][0]) if late.height else None
    shown = waits.sort(pl.col("end_ns") - pl.col("start_ns"), descending=True)
    members = group_members(case, shown["collective"]) if rank is not None else None
    known = members is not None and rank is not None and rank < len(members)
    if known and members is not None and rank is not None:
        rank = members[rank]  # transfers count inside their group
    yield Draft(
        "peer-wait",
        waited,
        "high",
        "parts",
        evidence=case.rows_of("transfers", shown["row"]),
        params={"late_rank": rank if rank is not None else -1},
        variant="unknown" if rank is None else "global" if known else "",
        duration=_shorter(case, idle),
    )
    return waited


def group_members(case: Case, collectives: pl.Series) -> list[int] | None:
    """Global ranks of the group whose collective waited longest, in the group's own order; None when the capture has no list."""
    rows = collectives.drop_nulls()
    listed = case.facts.metadata.get("parallel_group_info")
    if not rows.len() or not isinstance(listed, dict):
        return None
    found = listed.get(str(case.tables.collectives["group"].cast(pl.String)[int(rows[0])]))
    ranks = found.get("global_ranks") if isinstance(found, dict) else None
    return ranks if isinstance(ranks, list) and all(isinstance(rank, int) for rank in ranks) else None


def _shorter(case: Case, idle: Spans) -> np.typing.NDArray[np.int64] | None:
    """Durations without the wait inside each collective."""
    if case.schedule is None:
        return None
    tasks = case.schedule.tasks
    waited = idle.within(tasks["start_ns"].to_numpy(), tasks["end_ns"].to_numpy())
    is_communication = (tasks["kind"] == COMMUNICATION).to_numpy()
    return np.where(is_communication, case.schedule.duration - waited, case.schedule.duration)


def left_without_waits(case: Case, waits: Spans) -> int:
    """What communication still costs a rank once it waits for nobody, ns over all windows."""
    whole = case.parts.sum_ns("communication")
    shorter = _shorter(case, waits)
    if case.schedule is None or shorter is None:
        return max(whole - _inside(case, minus(waits, case.model.busy[0])), 0)
    none = np.where((case.schedule.tasks["kind"] == COMMUNICATION).to_numpy(), 0, shorter)
    return max(min(case.schedule.finish(duration=shorter) - case.schedule.finish(duration=none), whole), 0)


def _inside(case: Case, spans: Spans) -> int:
    return int(spans.within(np.array([case.model.start_ns]), np.array([case.model.end_ns]))[0])


def small_packets(case: Case) -> Iterator[Draft]:
    case.need_device()
    if case.kind != "npu":
        return
    packets = case.tables.collective_packets.drop_nulls(["packet_mb", "packets"])
    if not packets.height:
        raise CannotTell("packets")
    for transport, limit in (("SDMA", "sdma_mb"), ("RDMA", "rdma_mb")):
        rows = packets.filter(pl.col("transport") == transport)
        moved = float((rows["packet_mb"] * rows["packets"]).sum())
        small = rows.filter(pl.col("packet_mb") < case.limit("small-packets", limit))
        share = float((small["packet_mb"] * small["packets"]).sum()) / moved if moved else 0.0
        spent = float(small["packets_ms"].sum()) * 1e6
        if share > case.limit("small-packets", "share_of_bytes") and spent:
            yield Draft(
                "small-packets",
                min(spent, case.parts.sum_ns("communication")),
                "medium",
                "model",
                bound="upper",
                params={"transport": transport, "share": share, "limit": case.limit("small-packets", limit)},
                explains=("exposed-communication",),
            )


def small_collectives(case: Case) -> Iterator[Draft]:
    case.need_device()
    rows = _inside_windows(case, case.tables.collectives).drop_nulls("bytes")
    if not rows.height:
        raise CannotTell("collective-bytes")
    small = rows.filter(pl.col("bytes") < case.limit("small-collectives", "bytes")).sort("op_type", "group", "start_ns")
    keys = ["op_type", "group"]
    gap = pl.col("start_ns") - pl.col("end_ns").shift(1).over(keys)
    small = small.with_columns(
        near=(gap < case.limit("small-collectives", "gap_ms") * 1e6).fill_null(False), ns=pl.col("end_ns") - pl.col("start_ns")
    )
    near = small.filter("near")
    if near.height / case.count < case.limit("small-collectives", "per_step"):
        return
    latency = small["ns"].quantile(0.1) or 0.0
    saved = min(float(latency) * near.height, case.parts.sum_ns("communication"))
    yield Draft(
        "small-collectives",
        saved,
        "medium",
        "model",
        evidence=case.rows_of("collectives", near["row"]),
        params={"count": round(small.height / case.count), "kind": str(near["op_type"].mode().sort()[0])},
        explains=("exposed-communication",),
    )


def _inside_windows(case: Case, rows: pl.DataFrame) -> pl.DataFrame:
    inside = (pl.col("device") == case.model.device) & pl.col("start_ns").is_between(case.model.start_ns, case.model.end_ns)
    return rows.with_row_index("row").filter(inside)


def misaligned_bytes(case: Case) -> Iterator[Draft]:
    case.need_device()
    if case.kind != "npu":
        return
    rows = _inside_windows(case, case.tables.transfers)
    rows = rows.filter(
        (pl.col("transport") == "SDMA")
        & (pl.col("link") != "ON_CHIP")
        & (pl.col("bytes") > case.limit("misaligned-bytes", "bytes"))
    )
    if not rows.height:
        raise CannotTell("transfers")
    step = int(case.limit("misaligned-bytes", "bytes"))
    rows = rows.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"), aligned=pl.col("bytes") % step == 0)
    aligned, other = rows.filter("aligned"), rows.filter(~pl.col("aligned"))
    if not aligned.height or not other.height or not other["ns"].sum():
        return
    speeds = [int(rows["bytes"].sum()) / max(int(rows["ns"].sum()), 1) for rows in (other, aligned)]
    ratio = speeds[0] / speeds[1]
    if ratio < 1:
        saved = min(float(other["ns"].sum()) * (1 - ratio), case.parts.sum_ns("communication"))
        yield Draft(
            "misaligned-bytes",
            saved,
            "medium",
            "model",
            bound="upper",
            evidence=case.rows_of("transfers", other.sort("ns", descending=True)["row"]),
            params={"count": other.height, "ratio": ratio},
            explains=("exposed-communication",),
        )


def retransmission(case: Case) -> Iterator[Draft]:
    case.need_device()
    if case.kind != "npu":
        return
    rdma = _inside_windows(case, case.tables.transfers).filter(pl.col("transport") == "RDMA")
    long = rdma.filter(pl.col("end_ns") - pl.col("start_ns") > case.limit("retransmission", "task_s") * 1e9)
    retried = _inside_windows(case, case.tables.collectives).filter(pl.col("retry").fill_null(False))
    if long.height:
        lost = _inside(case, minus(spans_of(long), case.model.busy[0]))
        yield Draft(
            "retransmission",
            lost,
            "high",
            "parts",
            bound="upper",
            severity="" if lost >= case.limit("severity", "low") * case.total_ns else "info",
            evidence=case.rows_of("transfers", long["row"]),
            params={"count": long.height},
            explains=("exposed-communication",),
        )
        return
    sent_again = _sent_again(case)
    if retried.height or sent_again:
        yield Draft(
            "retransmission",
            0,
            "medium",
            "parts",
            severity="info",
            evidence=case.rows_of("collectives", retried["row"]),
            params={"count": max(retried.height, sent_again)},
        )


def _sent_again(case: Case) -> int:
    """By how much the network card's count of packets that it sent again rises inside the windows."""
    inside = pl.col("time_ns").is_between(case.model.start_ns, case.model.end_ns)
    counts = case.tables.counters.filter(inside & (pl.col("series").cast(pl.String) == "roceNewPktRty"))
    counts = counts.sort("time_ns").select("device", rise=pl.col("value").diff().over("device", "instance"))
    return int(counts["rise"].clip(0, None).sum())


def slow_link(case: Case) -> Iterator[Draft]:
    case.need_device()
    if case.kind != "npu":
        return
    links = case.tables.collective_links.filter((pl.col("transit_mb") > 0) & (pl.col("transit_ms") > 0))
    links = links.select("src_rank", "dst_rank", pl.col("transport").cast(pl.String), "transit_mb", "transit_ms")
    if not links.height:
        links = _links_of_transfers(case)
    if not links.height:
        raise CannotTell("links")
    keys = ["src_rank", "dst_rank", "transport"]
    links = (
        links.group_by(keys)
        .agg(pl.col("transit_mb", "transit_ms").sum())
        .with_columns(gbs=pl.col("transit_mb") / pl.col("transit_ms"))
    )
    for transport, limit in (("HCCS", "hccs_gbs"), ("RDMA", "rdma_gbs")):
        rows = links.filter(pl.col("transport") == transport)
        if rows.height < 3:
            continue
        median = float(rows["gbs"].median())  # type: ignore[arg-type]
        slow = rows.filter(
            (pl.col("gbs") < case.limit("slow-link", "of_class") * case.limit("slow-link", limit))
            & (pl.col("gbs") < case.limit("slow-link", "of_median") * median)
        ).sort("gbs")
        if slow.height:
            worst = slow.row(0, named=True)
            saved = float((slow["transit_ms"] * (1 - slow["gbs"] / median)).sum()) * 1e6
            yield Draft(
                "slow-link",
                min(saved, case.parts.sum_ns("communication")),
                "medium",
                "model",
                bound="upper",
                params={
                    "src": worst["src_rank"],
                    "dst": worst["dst_rank"],
                    "gbs": worst["gbs"],
                    "median": median,
                    "transport": transport,
                },
                explains=("exposed-communication",),
            )


def _links_of_transfers(case: Case) -> pl.DataFrame:
    """Links from single transfers, where the vendor's sums are not in the capture."""
    rows = _inside_windows(case, case.tables.transfers).filter((pl.col("bytes") > 0) & (pl.col("link") != "ON_CHIP"))
    rdma = pl.col("transport") == "RDMA"
    return rows.select(
        "src_rank",
        "dst_rank",
        pl.when(rdma).then(pl.lit("RDMA")).otherwise(pl.col("link").cast(pl.String)).alias("transport"),
        transit_mb=pl.col("bytes") / 1e6,
        transit_ms=(pl.col("end_ns") - pl.col("start_ns")) / 1e6,
    ).drop_nulls()


def contention(case: Case) -> Iterator[Draft]:
    case.need_device()
    if case.kind != "npu":
        return
    rows = _inside_windows(case, case.tables.transfers).filter(
        (pl.col("transport") == "SDMA") & (pl.col("bytes") > 0) & (pl.col("link") == "HCCS")
    )
    if not rows.height:
        raise CannotTell("transfers")
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    length = np.maximum(end - start, 1)
    products = case.kernels.filter(
        pl.Series(names.matches(case.kernels["op_type"], MATMUL) | names.matches(case.kernels["name"], MATMUL))
    )
    under = spans_of(products).within(start, end) > 0.5 * length
    if not under.any() or under.all():
        return
    sizes = rows["bytes"].to_numpy()
    ratio = (sizes[under].sum() / length[under].sum()) / (sizes[~under].sum() / length[~under].sum())
    if ratio < case.limit("contention", "of_without"):
        yield Draft("contention", 0, "low", "model", severity="info", params={"ratio": float(ratio)})


def syncbn(case: Case) -> Iterator[Draft]:
    if not case.tables.ops.height:
        raise CannotTell("ops")
    rows = case.tables.ops.filter(pl.col("name").cast(pl.String).str.contains("(?i)SyncBatchNorm"))
    if rows.height / max(case.count, 1) > case.limit("syncbn", "per_step"):
        yield Draft("syncbn", 0, "medium", "parts", severity="info", params={"count": round(rows.height / case.count)})


def serial_groups(case: Case) -> Iterator[Draft]:
    case.need_device()
    rows = _inside_windows(case, case.tables.collectives).drop_nulls("group")
    groups = rows.group_by("group").agg(pl.len()).filter(pl.col("len") >= case.count)["group"].sort().to_list()
    if len(groups) < 2:
        return
    sets = [spans_of(rows.filter(pl.col("group") == group)) for group in groups]
    first, second = sorted(sets, key=lambda one: -one.total_ns)[:2]
    if int(second.within(first.start, first.end).sum()) == 0:
        exposed_ns = case.parts.sum_ns("communication")
        saved = min(second.total_ns, exposed_ns // 2)
        yield Draft(
            "serial-groups",
            saved,
            "low",
            "model",
            bound="upper",
            params={"groups": len(groups)},
            explains=("exposed-communication",),
        )

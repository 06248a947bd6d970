# SPDX-License-Identifier: Apache-2.0
"""The digest of one rank from the tables of its capture: the general way, for every form that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.partition import DeviceModel, device_model, names
from stepscope.analysis.partition.model import COMPUTE, COPY
from stepscope.analysis.partition.spans import EMPTY, Ints, Spans, join, minus, spans_of, union
from stepscope.cluster.digest import SAME_NS, CallRows, Calls, Digests, call_rows, frame_of_calls, member_lists
from stepscope.cluster.network.sizes import size_class
from stepscope.cluster.read.names import operator_name
from stepscope.cluster.read.queues import QUEUE_NS, common_queues, group_or_stream
from stepscope.formats.cann.write.hash import text_hash
from stepscope.tables import TEXT, Facts, Tables
from stepscope.tables.cluster import CLUSTER_TABLES

TOP_KERNELS = 64
PROMPT_NS = 10_000  # a task that starts this soon after its launch was waited for by the device
LATENCY_NS = 30_000  # from a launch to the moment at which the device comes to the task, at most
_LAYERS = {"data_loading": "data", "gc": "gc", "checkpoint": "checkpoint"}


def digest(tables: Tables, *, rank: int, path: str = "") -> Digests:
    """What the cluster analysis needs of one rank."""
    # Whether the profiler slowed the first and last step is decided for the run, not by their place alone.
    tables = _with_group_keys(tables.replace(steps=tables.steps.with_columns(inflated=pl.lit(False))))
    named = _names_devices(tables)
    if not named:
        tables = _on_one_device(tables)
    model = _from_end_to_end(device_model(tables), tables)
    facts = tables.facts
    steps = [number if number is not None else place for place, number in enumerate(model.steps)]
    starts, launches = _launches(model)
    listed, calls, unlaunched = _calls(tables, model)
    causes = _causes(tables, model, unlaunched)
    rows = call_rows(calls, model.windows, model.busy[COMPUTE], causes, starts, launches)
    members = _members(tables, facts, rank)
    listed = _with_peers(tables, listed, members, rank)
    own = frame_of_calls(rank, steps, rows, {name: listed[name] for name in listed.columns if name in _CALL_COLUMNS}, calls.issue)
    groups, lists = _groups(rank, listed, members)
    frames = {
        "cluster_calls": own,
        "cluster_steps": _steps(tables, model, rank, steps, rows, listed),
        "cluster_kernels": _kernels(tables, model, rank),
        "cluster_groups": groups,
        "cluster_members": lists,
        "cluster_links": _links(tables, model, rank, steps, members),
        "cluster_memory": _memory(tables, model, rank, steps),
        "cluster_ranks": _rank(tables, facts, model, rank, path, rows, model.device if named else None),
    }
    return Digests({name: CLUSTER_TABLES[name].conform(frame) for name, frame in frames.items()})


# Calls that were launched at once: by the number of their launch; their starts are not in the same order on every rank.
_TIES = (
    pl.col("connection_id"),
    pl.col("stream"),
    pl.when(pl.col("stream").is_null()).then(pl.coalesce("op_type", "name").cast(pl.String)),
)


def _names_devices(tables: Tables) -> bool:
    return bool(tables.kernels["device"].count() or tables.collectives["device"].count())


def _on_one_device(tables: Tables) -> Tables:
    """Text files of one rank need not name its device: all their tasks ran on the same."""
    device = pl.lit(0, pl.Int32).alias("device")
    return tables.replace(kernels=tables.kernels.with_columns(device), collectives=tables.collectives.with_columns(device))


_CALL_COLUMNS = ("group", "op", "peer", "seq", "bytes", "variable", "retry", "relay", "lane", "start_ns", "end_ns")


def _with_group_keys(tables: Tables) -> Tables:
    """Collectives whose group is known by its text only get the key that other forms of the capture use: the text's hash."""
    texts = tables.collectives.filter(pl.col("group").is_null())["group_name"].cast(pl.String).drop_nulls().unique().to_list()
    if not texts:
        return tables
    hashes = {text: str(text_hash(text)) for text in texts}
    key = pl.col("group_name").cast(pl.String).replace_strict(hashes, default=None, return_dtype=pl.String).cast(TEXT)
    return tables.replace(collectives=tables.collectives.with_columns(group=pl.coalesce("group", key)))


def _from_end_to_end(model: DeviceModel, tables: Tables) -> DeviceModel:
    """The model with steps that end with their last task, so that loading data belongs to the step that needs it."""
    begin = _step_starts(tables, model)
    tasks = model.tasks.drop_nulls("issue_ns")
    if not model.by_issue or begin is None or not tasks.height:
        return model
    step = np.searchsorted(begin, tasks["issue_ns"].to_numpy(), side="right") - 1
    inside = (step >= 0) & (step < model.count)
    step, start, end = step[inside], tasks["start_ns"].to_numpy()[inside], tasks["end_ns"].to_numpy()[inside]
    first = np.full(model.count, np.iinfo(np.int64).max)
    last = np.zeros(model.count, dtype=np.int64)
    np.minimum.at(first, step, start)
    np.maximum.at(last, step, end)
    if (last == 0).any():
        return model
    borders = np.minimum(np.maximum.accumulate(last)[:-1], first[1:])
    # Before the first task of the capture: at most as long as in the other steps, if the host had begun the step by then.
    most = int((first[1:] - borders).max()) if model.count > 1 else int(first[0] - begin[0])
    opening = int(first[0]) - max(0, min(int(first[0] - begin[0]), most))
    windows = np.maximum.accumulate(np.concatenate(([opening], borders, [int(last.max())])).astype(np.int64))
    return replace(model, windows=windows)


def _step_starts(tables: Tables, model: DeviceModel) -> Ints | None:
    """When the host began the step of each window."""
    steps = tables.steps.drop_nulls(["start_ns", "end_ns"]).sort("start_ns")
    return steps["start_ns"].to_numpy() if steps.height == model.count else None


def _launches(model: DeviceModel) -> tuple[Ints | None, Ints | None]:
    tasks = model.tasks.filter(pl.col("kind") == COMPUTE).drop_nulls("launch_ns")
    if not tasks.height:
        return None, None
    return tasks["start_ns"].to_numpy(), tasks["launch_ns"].to_numpy()


def _calls(tables: Tables, model: DeviceModel) -> tuple[pl.DataFrame, Calls, Spans]:
    """Communication calls in program order (as the host issued them), when the compute stream reached each, and how long it was
    there before the host."""
    rows = (
        tables.collectives.with_row_index("row")
        .cast({"row": pl.Int64})
        .filter(pl.col("device").eq_missing(pl.lit(model.device, pl.Int32)))
    )
    table, key = (0, "kernel") if rows["kernel"].count() else (1, "row")
    issued = model.tasks.filter(pl.col("table") == table).select(pl.col("row").alias("key"), "issue_ns")
    rows = rows.with_columns(key=pl.col(key)).join(issued, on="key", how="left", maintain_order="left")
    rows = rows.filter(
        (pl.col("end_ns") > pl.col("start_ns")) & pl.col("start_ns").is_between(model.start_ns, model.end_ns, closed="left")
    )
    window = _windows(tables, model, rows)
    known = rows.height and rows["issue_ns"].count() == rows.height
    rows = rows.with_columns(pl.Series("window", window, dtype=pl.Int64))
    rows = rows.sort("window", *((pl.col("issue_ns"), *_TIES) if known else ()), "start_ns", "row", nulls_last=True)
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    rows = rows.with_columns(operator_name(pl.coalesce("op_type", "name").cast(pl.String)).alias("op"), lane=group_or_stream())
    if known:
        compute = model.tasks.filter(pl.col("kind") == COMPUTE).drop_nulls("issue_ns").sort("issue_ns", "start_ns")
        done = np.maximum.accumulate(compute["end_ns"].to_numpy()) if compute.height else np.empty(0, dtype=np.int64)
        before = np.searchsorted(compute["issue_ns"].to_numpy(), rows["issue_ns"].to_numpy(), side="left")
        reached = (
            np.where(before > 0, done[np.maximum(before - 1, 0)], 0) if compute.height else np.zeros(rows.height, dtype=np.int64)
        )
        launch = rows["launch_ns"].fill_null(rows["issue_ns"]).to_numpy() if rows.height else start
        rows = rows.with_columns(lane=common_queues(rows, launch))
        issue = np.minimum(np.maximum(reached, launch), start)
        # A host that runs ahead does not say when the device came to a call; unless it queued on its lane, it started at once. When
        # the next compute task runs already, the device has passed it.
        following = compute["start_ns"].to_numpy()[np.minimum(before, compute.height - 1)] if compute.height else start
        passed = np.where(before < compute.height, following, start)
        queued = _queued(rows)
        issue = np.where(queued, _after_ends(issue, start, end, passed), np.maximum(issue, np.minimum(start, passed)))
        late = launch > reached
        dispatch = union(reached[late & (reached > 0)], launch[late & (reached > 0)])
    else:
        dispatch = EMPTY
        # Without launches the earliest start of this and all later calls: one queued behind its lane starts after its successors.
        issue = np.minimum.accumulate(start[::-1])[::-1] if rows.height else start
    size = pl.col("bytes").fill_null(pl.col("count") * _element_size())
    rows = rows.with_columns(pl.col("group").cast(pl.String).fill_null("?"), size.alias("bytes"))
    return rows, Calls(issue.astype(np.int64), start, end, rows["window"].to_numpy()), dispatch


def _after_ends(issue: Ints, start: Ints, end: Ints, passed: Ints) -> Ints:
    """Launches that come to the device just when an earlier call ends, and before its next task, were waiting for that call."""
    ends = np.sort(end)
    at = ends[np.minimum(np.searchsorted(ends, issue, side="right"), len(ends) - 1)] if len(ends) else end
    soon = (at > issue) & (at - issue <= LATENCY_NS) & (at <= np.minimum(start, passed))
    return np.where(soon, at, issue)


def _queued(rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Calls that began where another one of their queue ended."""
    known = rows.select("end_ns", "lane", begun=pl.col("start_ns") + 1000).with_row_index("call").sort("begun")
    ends = known.select("lane", ended="end_ns").sort("ended")
    last = known.join_asof(ends, left_on="begun", right_on="ended", by="lane", coalesce=False, check_sortedness=False)
    queued = (last["begun"] - last["ended"] < QUEUE_NS).fill_null(False)
    found: npt.NDArray[np.bool_] = last.with_columns(queued=queued).sort("call")["queued"].to_numpy()
    return found


def _windows(tables: Tables, model: DeviceModel, rows: pl.DataFrame) -> Ints:
    """Window of each call: the step in which the host issued it, else the one in which it starts."""
    place = model.window_of(rows["start_ns"].to_numpy())
    if model.by_issue and rows.height:
        begin = _step_starts(tables, model)
        if begin is not None:
            issued = rows["issue_ns"].fill_null(0).to_numpy()
            by_host = np.searchsorted(begin, issued, side="right") - 1
            place = np.where(rows["issue_ns"].is_null().to_numpy() | (by_host < 0), place, by_host)
    return np.clip(place, 0, model.count - 1).astype(np.int64)


_SIZES = {
    "INT8": 1,
    "UINT8": 1,
    "FP16": 2,
    "BFP16": 2,
    "BF16": 2,
    "INT16": 2,
    "UINT16": 2,
    "FP32": 4,
    "INT32": 4,
    "UINT32": 4,
    "FP64": 8,
    "INT64": 8,
    "UINT64": 8,
}


def _element_size() -> pl.Expr:
    return pl.col("data_type").cast(pl.String).str.to_uppercase().replace_strict(_SIZES, default=None, return_dtype=pl.Int64)


def _causes(tables: Tables, model: DeviceModel, unlaunched: Spans) -> dict[str, Spans]:
    """What the host was doing, by cause, the first that holds counts."""
    main = model.main_tid
    layers: Mapping[str, Spans] = model.layers(main) if main is not None else {}
    found = {cause: layers.get(layer, EMPTY) for cause, layer in _LAYERS.items()}
    threads = model.tasks["issue_tid"].drop_nulls().unique().sort().to_list()[:4]
    issuing = [model.layers(thread) for thread in dict.fromkeys([*threads, *([main] if main is not None else [])])]
    allocations = [one.get("alloc", EMPTY) for one in issuing]
    tasks = model.tasks.filter(pl.col("kind") == COMPUTE)
    start, end, launch = (tasks[name].to_numpy() for name in ("start_ns", "end_ns", "launch_ns"))
    dispatch = EMPTY
    if tasks["launch_ns"].count() and tasks.height > 1:
        reach = np.maximum.accumulate(end)
        prompt = (start[1:] > reach[:-1]) & (start[1:] - np.nan_to_num(launch[1:].astype(np.float64)) < PROMPT_NS)
        dispatch = union(reach[:-1][prompt], start[1:][prompt])
    # While the device has nothing to do, a host inside operators and calls of the runtime is on its way to the next launch.
    dispatch = join(dispatch, unlaunched, *(one.get(layer, EMPTY) for one in issuing for layer in ("operator", "api")))
    copies = model.tasks.filter(pl.col("kind") == COPY)
    return {
        "data_loading": found["data_loading"],
        "gc": join(found["gc"], _collections(tables)),
        "allocation": join(*allocations),
        "checkpoint": found["checkpoint"],
        "copy": union(copies["start_ns"].to_numpy(), copies["end_ns"].to_numpy()),
        "dispatch": dispatch,
    }


def _collections(tables: Tables) -> Spans:
    """Garbage collections that a trace has under their names only."""
    named = ((tables.python_calls, "name"), (tables.ops, "name"), (tables.marks, "message"))
    return join(EMPTY, *(spans_of(frame.filter(pl.Series(names.matches(frame[column], names.GC)))) for frame, column in named))


def _members(tables: Tables, facts: Facts, rank: int) -> dict[str, tuple[list[int] | None, str, str]]:
    """By key of a group: its ranks, what the program calls it, its full text."""
    found: dict[str, tuple[list[int] | None, str, str]] = {}
    listed = facts.metadata.get("parallel_group_info")
    for key, entry in listed.items() if isinstance(listed, dict) else ():
        if isinstance(entry, dict) and is_ranks(entry.get("global_ranks")):
            described = (entry["global_ranks"], str(entry.get("group_name") or ""), str(key))
            found[str(key)] = found[str(text_hash(str(key)))] = described
    distributed = facts.metadata.get("distributedInfo")
    configured = distributed.get("pg_config") if isinstance(distributed, dict) else None
    for entry in configured if isinstance(configured, list) else ():
        if isinstance(entry, dict) and is_ranks(entry.get("ranks")):
            found[str(entry.get("pg_name"))] = (entry["ranks"], str(entry.get("pg_desc") or ""), "")
    groups = tables.collectives.select(pl.col("group", "group_name", "members").cast(pl.String)).unique(maintain_order=True)
    for key, text, members in groups.iter_rows():
        if key is None:
            continue
        ranks = [int(word) for word in members.split(",")] if members else None
        known = found.get(key) or found.get(text or "")
        if ranks is not None and rank in ranks:
            found[key] = (ranks, known[1] if known else text or "", text or "")
        elif known:
            found[key] = known
    return found


def is_ranks(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, int) for one in value)


def _with_peers(
    tables: Tables, calls: pl.DataFrame, members: Mapping[str, tuple[list[int] | None, str, str]], rank: int
) -> pl.DataFrame:
    """Calls with the partner of those that are point-to-point."""
    between = tables.transfers.filter((pl.col("src_rank") != pl.col("dst_rank")) & pl.col("collective").is_not_null())
    between = between.group_by("collective").agg(pl.col("src_rank").first(), pl.col("dst_rank").first())
    local = {row: (src, dst) for row, src, dst in between.iter_rows()}
    peers: list[int | None] = []
    for row, op, group, src, dst in calls.select("row", "op", "group", "src_rank", "dst_rank").iter_rows():
        peer = None
        if op in ("send", "recv"):
            ranks = members.get(group, (None, "", ""))[0]
            peer = dst if op == "send" else src
            if peer is None and ranks is not None and len(ranks) == 2 and rank in ranks:
                peer = ranks[0] if ranks[1] == rank else ranks[1]
            if peer is None and ranks is not None and row in local:
                number = local[row][1 if op == "send" else 0]
                ordered = sorted(ranks)
                peer = ordered[number] if number is not None and 0 <= number < len(ordered) else None
        peers.append(peer if peer != rank else None)
    calls = calls.with_columns(
        pl.Series("peer", peers, dtype=pl.Int64),
        pl.col("op").str.starts_with("alltoall").alias("variable"),
        pl.col("seq").cast(pl.Int64),
    )
    return calls.with_columns(_lanes(calls))


def _lanes(calls: pl.DataFrame) -> pl.Series:
    """Queue of each call: calls of one queue run one after the other, so those of a group that overlap are on several."""
    ahead = pl.col("end_ns").cum_max().shift(1).over("lane", order_by=pl.int_range(pl.len()))
    overlaps = calls.select("lane", (pl.col("start_ns") < ahead - SAME_NS).fill_null(False).alias("overlaps"))
    shared = overlaps.filter("overlaps")["lane"].unique()
    finer = pl.concat_str("lane", "op", pl.col("peer").cast(pl.String).fill_null("-"), separator="/")
    return calls.select(pl.when(pl.col("lane").is_in(shared.implode())).then(finer).otherwise("lane").alias("lane"))["lane"]


def _groups(
    rank: int, calls: pl.DataFrame, members: Mapping[str, tuple[list[int] | None, str, str]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    keys = sorted(set(calls["group"].drop_nulls().to_list()))
    known = [members.get(key, (None, "", "")) for key in keys]
    rows = [(rank, key, text, called) for key, (_, called, text) in zip(keys, known, strict=True)]
    schema: dict[str, Any] = {
        "rank": pl.Int64,
        "group": pl.String,
        "text": pl.String,
        "pg_name": pl.String,
    }
    listed, lists = member_lists(ranks for ranks, _, _ in known)
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.col("text", "pg_name").replace("", None), listed)
    return frame, lists


def _steps(tables: Tables, model: DeviceModel, rank: int, steps: list[int], rows: CallRows, calls: pl.DataFrame) -> pl.DataFrame:
    first, beyond = model.windows[:-1], model.windows[1:]
    computing, communicating, _ = model.busy
    is_p2p = (
        calls["op"].is_in(["send", "recv", "sendrecv", "batchsendrecv"]).to_numpy() if calls.height else np.empty(0, dtype=np.bool_)
    )
    real = rows.call >= 0
    waited = np.zeros(len(rows.call), dtype=np.int64)
    waited[real] = np.where(is_p2p[rows.call[real]], rows.waited[real], 0) if real.any() else 0
    kernels = np.bincount(
        np.clip(model.window_of(model.tasks.filter(pl.col("kind") == COMPUTE)["start_ns"].to_numpy()), 0, model.count - 1),
        minlength=model.count,
    )
    return pl.DataFrame(
        {
            "rank": [rank] * model.count,
            "step": pl.Series(steps, dtype=pl.Int64),
            "start_ns": first,
            "end_ns": beyond,
            "computing_ns": computing.within(first, beyond),
            "communication_ns": communicating.within(first, beyond),
            "exposed_ns": minus(communicating, computing).within(first, beyond),
            "wait_ns": rows.wait,
            "free_ns": beyond - first - join(computing, communicating).within(first, beyond),
            "bubble_ns": np.bincount(rows.window, waited, model.count).astype(np.int64),
            "kernels": kernels,
            "peak_bytes": _peaks(tables, model),
            "frequency_mhz": _frequencies(tables, model),
        }
    )


def _peaks(tables: Tables, model: DeviceModel) -> pl.Series:
    events = tables.memory_events.filter(pl.col("device").is_not_null()).select("time_ns", "total_allocated").drop_nulls()
    place = model.window_of(events["time_ns"].to_numpy())
    found = events.with_columns(window=pl.Series(place, dtype=pl.Int64)).group_by("window").agg(pl.col("total_allocated").max())
    by_window = dict(found.iter_rows())
    most: pl.Series = pl.Series([by_window.get(number) for number in range(model.count)], dtype=pl.Float64)
    whole: pl.Series = most.cast(pl.Int64)
    return whole


def _frequencies(tables: Tables, model: DeviceModel) -> pl.Series:
    """Mean frequency of each window; the samples are the moments at which it changed."""
    text = pl.concat_str(pl.col("source", "name", "series").cast(pl.String).fill_null(""), separator=" ")
    samples = tables.counters.filter(text.str.contains(r"(?i)ai ?core.*freq|sm clock")).sort("time_ns")
    if not samples.height:
        return pl.Series([None] * model.count, dtype=pl.Float64)
    times, values = samples["time_ns"].to_numpy(), samples["value"].to_numpy()
    until = np.append(times[1:], max(model.end_ns, int(times[-1]) + 1))
    times = times.copy()
    times[0] = min(int(times[0]), model.start_ns)
    means = []
    for first, beyond in zip(model.windows[:-1], model.windows[1:], strict=True):
        weight = np.maximum(np.minimum(until, beyond) - np.maximum(times, first), 0).astype(np.float64)
        means.append(float((weight * values).sum() / weight.sum()) if weight.sum() > 0 else None)
    found: pl.Series = pl.Series(means, dtype=pl.Float64)
    return found


def _kernels(tables: Tables, model: DeviceModel, rank: int) -> pl.DataFrame:
    rows = tables.kernels.filter(
        pl.col("device").eq_missing(pl.lit(model.device, pl.Int32))
        & (pl.col("kind") == "compute")
        & pl.col("start_ns").is_between(model.start_ns, model.end_ns, closed="left")
    )
    shapes = pl.coalesce(
        pl.col("input_shapes").cast(pl.String), pl.concat_str(pl.col("grid", "block").cast(pl.String), separator=" ")
    )
    length = pl.col("end_ns") - pl.col("start_ns")
    found = rows.group_by(pl.col("name").cast(pl.String), shapes.alias("shapes")).agg(
        pl.len().cast(pl.Int64).alias("count"),
        length.sum().alias("total_ns"),
        length.median().cast(pl.Int64).alias("median_ns"),
        length.quantile(0.95).cast(pl.Int64).alias("p95_ns"),
    )
    found = found.sort(["total_ns", "name", "shapes"], descending=[True, False, False], nulls_last=True)
    return found.head(TOP_KERNELS).with_columns(rank=pl.lit(rank, pl.Int64))


def _links(
    tables: Tables, model: DeviceModel, rank: int, steps: list[int], members: Mapping[str, tuple[list[int] | None, str, str]]
) -> pl.DataFrame:
    rows = tables.transfers.filter((pl.col("src_rank") != pl.col("dst_rank")) & (pl.col("bytes") > 0))
    if not rows.height:
        return pl.DataFrame()
    groups = tables.collectives["group"].cast(pl.String).gather(rows["collective"])
    place = np.clip(model.window_of(rows["start_ns"].to_numpy()), 0, model.count - 1)
    rows = rows.with_columns(group=groups, step=pl.Series(steps, dtype=pl.Int64).gather(place))
    found = rows.group_by(
        "step",
        "group",
        "src_rank",
        "dst_rank",
        pl.coalesce("link", "transport").cast(pl.String).alias("transport"),
        size_class(pl.col("bytes")).alias("size_class"),
    ).agg(
        pl.len().cast(pl.Int64).alias("count"),
        pl.col("bytes").sum().cast(pl.Float64),
        (pl.col("end_ns") - pl.col("start_ns")).sum().cast(pl.Float64).alias("time_ns"),
    )
    ordered = {key: sorted(ranks) for key, (ranks, _, _) in members.items() if ranks is not None}

    def world(group: str | None, number: int | None) -> int | None:
        known = ordered.get(group or "")
        return known[number] if known is not None and number is not None and 0 <= number < len(known) else number

    keys = found.select("group", "src_rank", "dst_rank").rows()
    return found.with_columns(
        rank=pl.lit(rank, pl.Int64),
        src=pl.Series([world(group, src) for group, src, _ in keys], dtype=pl.Int64),
        dst=pl.Series([world(group, dst) for group, _, dst in keys], dtype=pl.Int64),
    ).sort("step", "group", "src", "dst", "transport", "size_class", nulls_last=True)


def _memory(tables: Tables, model: DeviceModel, rank: int, steps: list[int]) -> pl.DataFrame:
    events = tables.memory_events.filter(pl.col("device").is_not_null() & pl.col("total_allocated").is_not_null())
    if not events.height:
        return pl.DataFrame()
    place = model.window_of(events["time_ns"].to_numpy())
    events = events.with_columns(window=pl.Series(place, dtype=pl.Int64)).filter(pl.col("window").is_between(0, model.count - 1))
    found = events.group_by("window", pl.col("component").cast(pl.String)).agg(
        pl.col("total_allocated").max().cast(pl.Int64).alias("allocated_bytes"),
        pl.col("total_reserved").max().cast(pl.Int64).alias("reserved_bytes"),
    )
    return found.with_columns(rank=pl.lit(rank, pl.Int64), step=pl.Series(steps, dtype=pl.Int64).gather(found["window"])).sort(
        "step", "component", nulls_last=True
    )


def _rank(
    tables: Tables, facts: Facts, model: DeviceModel, rank: int, path: str, rows: CallRows, device: int | None
) -> pl.DataFrame:
    given = facts.metadata.get("distributed_args")
    sizes = given if isinstance(given, dict) else {}
    distributed = facts.metadata.get("distributedInfo")
    world = sizes.get("world_size") or (distributed.get("world_size") if isinstance(distributed, dict) else None)

    def size(key: str) -> int | None:
        value = sizes.get(key)
        return value if isinstance(value, int) and value > 0 else None

    quality = tables.quality.filter((pl.col("severity") == "loss") & (pl.col("unit") == "records"))
    return pl.DataFrame(
        {
            "rank": [rank],
            "host": [facts.host_name or facts.host_uid or None],
            "device": [device],
            "device_name": [facts.device_names.get(str(device))],
            "source": [facts.source],
            "lean": [False],
            "path": [path],
            "start_ns": [model.start_ns],
            "end_ns": [model.end_ns],
            "world_size": [world if isinstance(world, int) else None],
            "tp": [size("tensor_model_parallel_size")],
            "pp": [size("pipeline_model_parallel_size")],
            "dp": [size("data_parallel_size")],
            "cp": [size("context_parallel_size")],
            "ep": [size("expert_model_parallel_size")],
            "losses": [int(quality["count"].sum())],
            "residual_ns": [rows.residual_ns],
        }
    )

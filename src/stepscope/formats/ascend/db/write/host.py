# SPDX-License-Identifier: Apache-2.0
"""Framework and host tables of the profiler database: rows from tables (docs/formats/outputs.md 12.1)."""

from __future__ import annotations

from itertools import chain

import numpy as np
import polars as pl

from stepscope.formats import NONE32
from stepscope.formats.ascend.db.columns import SPAN, global_tid, written
from stepscope.formats.ascend.db.schema import (
    ENUMS,
    FRAMEWORK_CONNECTIONS,
    FRAMEWORK_STRINGS,
    NO_DEVICE_MARK,
    OP,
    PROFILER_DB,
    QUEUE,
    TRACE,
)
from stepscope.formats.ascend.db.string_ids import StringIds
from stepscope.formats.ascend.db.write.numbers import after
from stepscope.formats.ascend.stack_frames import file_frames
from stepscope.tables import ALL_TABLES, TEXT, Tables

_API = PROFILER_DB["PYTORCH_API"].names
_MARK_OPERATOR, _RANGE_END = "mstx_", "range_end"
_NEAR_NS = 1_000_000  # a mark and the task that carries it to the device are made one after the other


def framework_rows(tables: Tables, pairs: pl.DataFrame, strings: StringIds) -> dict[str, pl.DataFrame]:
    """PYTORCH_API with its connections and call chains.

    Args:
        tables: linked tables.
        pairs: rows of operators, forward and backward, that belong together.
        strings: texts that the rows name by number.
    """
    ops, queue = tables["ops"], tables["queue"]
    calls = tables["python_calls"]
    numbers, connections = _connections(tables, pairs)
    chains, chain_rows = _call_chains(ops["stack"], strings)
    op_rows = ops.select(
        *written(SPAN),
        global_tid().alias("globalTid"),
        numbers.alias("connectionId"),
        strings.of(ops["name"], FRAMEWORK_STRINGS, missing="").alias("name"),
        pl.col("seq").fill_null(-1).alias("sequenceNumber"),
        pl.col("fwd_thread").fill_null(0).alias("fwdThreadId"),
        strings.of(ops["dtypes"], FRAMEWORK_STRINGS, change=_many_lines).alias("inputDtypes"),
        strings.of(ops["shapes"], FRAMEWORK_STRINGS, change=_many_lines).alias("inputShapes"),
        chains.alias("callchainId"),
        pl.lit(OP, pl.Int64).alias("type"),
    )
    mark_ops, mark_connections = _mark_operators(tables, strings, first=after(connections["id"]))
    parts = [
        calls.select(
            *written(SPAN),
            global_tid().alias("globalTid"),
            strings.of(calls["name"], FRAMEWORK_STRINGS, missing="").alias("name"),
            pl.lit(TRACE, pl.Int64).alias("type"),
        ),
        *_queue_rows(queue, strings),
        op_rows,
        mark_ops,
    ]
    nothing = pl.DataFrame(schema=dict.fromkeys(_API, pl.Int64()))
    return {
        "PYTORCH_API": pl.concat([nothing, *(part for part in parts if part.height)], how="diagonal"),
        "CONNECTION_IDS": pl.concat([connections, mark_connections]),
        "PYTORCH_CALLCHAINS": chain_rows,
    }


def _mark_operators(tables: Tables, strings: StringIds, *, first: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of the operators that put marks into streams, and their connections with MSTX_EVENTS (docs/formats/outputs.md 12.1).

    Our collector has them in the task queue only; captures that have them as operators get no second row.
    """
    ops, queue = tables["ops"], tables["queue"]
    name = pl.col("name").cast(pl.String)
    enqueued = queue.filter((pl.col("kind") == "enqueue") & name.str.starts_with(_MARK_OPERATOR))
    marks = tables["marks"].filter(pl.col("connection_id").is_not_null())
    if not enqueued.height or ops.filter(name.str.starts_with(_MARK_OPERATOR)).height:
        return pl.DataFrame(), pl.DataFrame(schema={"id": pl.Int64, "connectionId": pl.Int64})
    found = []
    # A range is put into its stream twice, where it begins and where it ends.
    begun = marks.select("start_ns", "tid", "connection_id")
    ended = marks.select(start_ns="end_ns", tid=pl.coalesce("end_tid", "tid"), connection_id="connection_id")
    is_end = name.str.contains(_RANGE_END, literal=True)
    for chosen, known in ((enqueued.filter(~is_end), begun), (enqueued.filter(is_end), ended)):
        chosen, known = chosen.sort("start_ns"), known.sort("start_ns")
        found.append(
            chosen.join_asof(known, on="start_ns", by="tid", strategy="nearest", tolerance=_NEAR_NS, check_sortedness=False)
        )
    rows = pl.concat(found).sort("start_ns").with_columns(pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias("id"))
    shown = rows.select(
        *written(SPAN),
        global_tid().alias("globalTid"),
        pl.when(pl.col("connection_id").is_not_null()).then("id").alias("connectionId"),
        strings.of(rows["name"], FRAMEWORK_STRINGS, missing="").alias("name"),
        pl.lit(-1, pl.Int64).alias("sequenceNumber"),
        pl.lit(0, pl.Int64).alias("fwdThreadId"),
        pl.lit(OP, pl.Int64).alias("type"),
    )
    return shown, rows.select("id", pl.col("connection_id").alias("connectionId")).drop_nulls()


def _many_lines(text: pl.Expr) -> pl.Expr:
    # The profiler puts every input on a line of its own.
    return text.str.replace_all(";", ";\r\n", literal=True)


def _queue_rows(queue: pl.DataFrame, strings: StringIds) -> list[pl.DataFrame]:
    """Enqueues, then dequeues; an enqueue takes its name from the dequeue with its number (docs/formats/outputs.md 2.2)."""
    row = pl.int_range(pl.len(), dtype=pl.Int64)
    numbered = queue.with_columns(pl.when(pl.col("correlation_id").is_not_null()).then(row).alias("connectionId"))
    dequeued = queue.filter(pl.col("kind") == "dequeue").select("correlation_id", pl.col("name").alias("task")).drop_nulls()
    dequeued = dequeued.unique("correlation_id", keep="first", maintain_order=True)
    parts = []
    for kind, change in (("enqueue", _enqueued), ("dequeue", _dequeued)):
        rows = numbered.filter(pl.col("kind") == kind)
        if kind == "enqueue":
            rows = rows.join(dequeued, on="correlation_id", how="left", maintain_order="left")
            rows = rows.with_columns(pl.coalesce("name", "task").alias("name"))
        parts.append(
            rows.select(
                *written(SPAN),
                global_tid().alias("globalTid"),
                "connectionId",
                strings.of(rows["name"], FRAMEWORK_STRINGS, missing=kind.capitalize(), change=change).alias("name"),
                pl.lit(QUEUE, pl.Int64).alias("type"),
            )
        )
    return parts


def _enqueued(text: pl.Expr) -> pl.Expr:
    return "Enqueue@" + text


def _dequeued(text: pl.Expr) -> pl.Expr:
    return "Dequeue@" + text


def _connections(tables: Tables, pairs: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """Connection number of each operator, and CONNECTION_IDS of queue rows and operators (docs/formats/outputs.md 12.1)."""
    ops, queue = tables["ops"], tables["queue"]
    of_queue = queue.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"), (pl.col("correlation_id") + FRAMEWORK_CONNECTIONS).alias("connectionId")
    ).drop_nulls()
    fresh = FRAMEWORK_CONNECTIONS + after(queue.filter(pl.col("kind") == "enqueue")["correlation_id"])
    paired = pairs.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("pair") + fresh)
    ends = [paired.select(pl.col(side).alias("op"), pl.col("pair").alias("connectionId")) for side in ("forward", "backward")]
    launched = [
        tables[name]
        .filter(work & ~pl.col("extra").fill_null(False))
        .select("op", pl.col("connection_id").alias("connectionId"))
        .drop_nulls()
        for name, work in (("kernels", pl.col("kind") == "compute"), ("collectives", pl.lit(True)))
    ]
    of_ops = pl.concat([*ends, *launched]).unique(maintain_order=True).sort("op", maintain_order=True)
    related = of_ops["op"].unique().sort()
    number = np.full(ops.height, -1, dtype=np.int64)
    number[related.to_numpy()] = np.arange(queue.height, queue.height + len(related))
    numbers = pl.Series("connectionId", number)
    rows = of_ops.select(numbers.gather(of_ops["op"]).alias("id"), "connectionId")
    return numbers.set(numbers < 0, None), pl.concat([of_queue, rows])


def _call_chains(stacks: pl.Series, strings: StringIds) -> tuple[pl.Series, pl.DataFrame]:
    """Call chain of each operator, and PYTORCH_CALLCHAINS; equal stacks share one chain."""
    distinct = stacks.unique(maintain_order=True).drop_nulls()
    if not len(distinct):
        return pl.repeat(None, len(stacks), dtype=pl.Int64, eager=True), pl.DataFrame()
    codes = distinct.to_physical().to_numpy()
    chain_of = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    chain_of[codes] = np.arange(codes.size)
    physical = stacks.to_physical()
    chains = pl.Series(chain_of[physical.fill_null(codes[0]).to_numpy()])
    frames = [file_frames(stack) for stack in distinct.cast(pl.String)]
    depths = np.fromiter(map(len, frames), np.int64, len(frames))
    rows = pl.DataFrame(
        {
            "id": np.repeat(np.arange(depths.size), depths),
            "stack": strings.of(pl.Series(list(chain.from_iterable(frames)), dtype=TEXT), FRAMEWORK_STRINGS, missing=""),
            "stackDepth": np.arange(depths.sum()) - np.repeat(np.cumsum(depths) - depths, depths),
        }
    )
    return chains.set(physical.is_null(), None), rows


def api_rows(tables: Tables, strings: StringIds) -> dict[str, pl.DataFrame]:
    """CANN_API, and OSRT_API for calls of the operating system."""
    calls = pl.concat([tables["api_calls"], _known_by_arrow(tables)])
    system = calls.filter(pl.col("level") == "os")
    runtime = calls.filter(pl.col("level").ne_missing("os")) if system.height else calls
    types = {name: number for number, name in ENUMS["ENUM_API_TYPE"].items()}
    # Calls of other vendors' runtimes have no number of their own.
    level = runtime["level"].cast(pl.String).replace_strict(types, default=types["runtime"], return_dtype=pl.Int64)
    return {
        "CANN_API": runtime.select(
            *written(SPAN),
            level.alias("type"),
            global_tid().alias("globalTid"),
            _unique_connections(runtime).alias("connectionId"),
            strings.of(runtime["name"], 0, missing="N/A").alias("name"),
        ),
        "OSRT_API": system.select(
            strings.of(system["name"], 0, missing="N/A").alias("name"), global_tid().alias("globalTid"), *written(SPAN)
        ),
    }


def _known_by_arrow(tables: Tables) -> pl.DataFrame:
    """Launches of which only the moment is known: timelines of level 0 keep the arrows and leave the calls out.

    They are written without length, so that tasks and operators stay connected.
    """
    parts = [tables[name].select("launch_ns", "launch_tid", "connection_id") for name in ("kernels", "collectives")]
    launches = pl.concat(parts).drop_nulls().unique("connection_id", keep="first", maintain_order=True)
    launches = launches.join(tables["api_calls"], on="connection_id", how="anti", maintain_order="left")
    pid = tables["ops"]["pid"].first() if tables["ops"].height else None
    frame = launches.select(
        pl.lit(pid, pl.Int64).alias("pid"), tid="launch_tid", start_ns="launch_ns", end_ns="launch_ns",
        level=pl.lit("node"), name=pl.lit("launch"), connection_id="connection_id",
    )  # fmt: skip
    return ALL_TABLES["api_calls"].conform(frame)


def _unique_connections(calls: pl.DataFrame) -> pl.Series:
    """Connection ids as they are; calls without one, or that share one, get a number of their own: it is the primary key."""
    ids = calls["connection_id"]
    if not ids.null_count() and ids.n_unique() == len(ids):
        return ids
    # Of calls that share an id, the launch of the operator keeps it.
    rank = (pl.col("level") == "node").fill_null(False)
    kept = (
        calls.select("connection_id", rank.alias("is_node"), pl.int_range(pl.len()).alias("row"))
        .drop_nulls("connection_id")
        .sort("is_node", "row", descending=[True, False])
        .unique("connection_id", keep="first")["row"]
    )
    fresh = after(ids) + np.arange(len(ids))
    fresh[kept.to_numpy()] = ids.gather(kept).to_numpy()
    return pl.Series("connection_id", fresh)


def mark_rows(tables: Tables, strings: StringIds) -> pl.DataFrame:
    """MSTX_EVENTS."""
    marks = tables["marks"].with_columns(pl.coalesce("end_tid", "tid").alias("last_tid"))
    kinds = {name: number for number, name in ENUMS["ENUM_MSTX_EVENT_TYPE"].items()}
    kind = marks["kind"].cast(pl.String).replace_strict(kinds, default=None, return_dtype=pl.Int64)
    guessed = pl.when(pl.col("end_ns") > pl.col("start_ns")).then(kinds["start/end"]).otherwise(kinds["marker"])
    return marks.select(
        *written(SPAN),
        pl.coalesce(kind, guessed).alias("eventType"),
        pl.col("range_id").fill_null(NONE32).alias("rangeId"),
        pl.col("category").fill_null(NONE32).alias("category"),
        strings.of(marks["message"], 0, missing="").alias("message"),
        global_tid().alias("globalTid"),
        global_tid(tid="last_tid").alias("endGlobalTid"),
        strings.of(marks["domain"], 0, missing="default").alias("domainId"),
        pl.col("connection_id").fill_null(NO_DEVICE_MARK).alias("connectionId"),
    )


def step_rows(tables: Tables) -> pl.DataFrame:
    return tables["steps"].select(pl.col("step").alias("id"), *written(SPAN))


def gc_rows(tables: Tables) -> pl.DataFrame:
    return tables["gc_pauses"].select(*written(SPAN), global_tid(tid="pid").alias("globalTid"))

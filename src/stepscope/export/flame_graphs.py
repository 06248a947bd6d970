# SPDX-License-Identifier: Apache-2.0
"""Calls of each thread for flame graphs: the JSON of speedscope, and collapsed stacks of FlameGraph and its relatives.

Python calls are taken where they were recorded, else operators. Both programs want calls that nest: what ends after its caller
is cut there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import polars as pl

from stepscope.analysis.link.op_tree import depths, levels, parents, row_numbers
from stepscope.errors import CaptureError
from stepscope.render.atomic import replacing, write_rows
from stepscope.tables import Tables

SPEEDSCOPE_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write_speedscope(tables: Tables, path: Path, name: str) -> Path:
    """One evented profile per thread, in nanoseconds from the first call."""
    calls = nested_calls(tables)
    zero = int(calls["start_ns"].min() or 0)  # type: ignore[arg-type]
    calls = calls.with_columns(pl.col("start_ns", "end_ns") - zero)
    frames = calls.select(pl.col("name").unique(maintain_order=True)).with_row_index("frame")
    calls = calls.join(frames, on="name", how="left", maintain_order="left")
    # What closes at an instant closes before anything opens there, the innermost first.
    events = pl.concat(
        [
            calls.select(
                "pid", "tid", "frame", pl.lit("C").alias("type"), pl.col("end_ns").alias("at"), (-pl.col("depth")).alias("turn")
            ),
            calls.select(
                "pid", "tid", "frame", pl.lit("O").alias("type"), pl.col("start_ns").alias("at"), pl.col("depth").alias("turn")
            ),
        ]
    ).sort("pid", "tid", "at", "type", "turn")
    head = {"$schema": SPEEDSCOPE_SCHEMA, "exporter": "stepscope", "name": name, "activeProfileIndex": 0}
    head["shared"] = {"frames": [{"name": frame} for frame in frames["name"].to_list()]}
    with replacing(path) as file:
        file.write(orjson.dumps(head)[:-1] + b',"profiles":[')
        for number, ((pid, tid), part) in enumerate(events.group_by(["pid", "tid"], maintain_order=True)):
            about = {"type": "evented", "name": f"process {pid}, thread {tid}", "unit": "nanoseconds"}
            about |= {"startValue": part["at"][0], "endValue": part["at"][-1]}
            file.write((b"," if number else b"") + orjson.dumps(about)[:-1] + b',"events":[')
            comma = pl.when(pl.int_range(pl.len()) < pl.len() - 1).then(pl.lit(",")).otherwise(pl.lit(""))
            event = pl.concat_str(
                pl.lit('{"type":"'), "type", pl.lit('","frame":'), "frame", pl.lit(',"at":'), "at", pl.lit("}"), comma
            )
            write_rows(file, part.select(event).to_series())
            file.write(b"]}")
        file.write(b"]}")
    return path


def write_collapsed(tables: Tables, path: Path) -> Path:
    """One line per distinct stack of calls: `outermost;…;innermost nanoseconds`, of the time outside of further calls."""
    calls = nested_calls(tables)
    parent = row_numbers(calls["parent"])
    spent = (calls["end_ns"] - calls["start_ns"]).to_numpy().copy()
    inner = parent >= 0
    np.subtract.at(spent, parent[inner], (calls["end_ns"] - calls["start_ns"]).to_numpy()[inner])
    names = calls["name"].str.replace_all(r"[;\r\n]", ":")
    # Stacks are numbered level by level: a text is made once for each distinct one.
    stack = np.full(calls.height, -1, dtype=np.int64)
    texts = pl.Series("text", [], pl.String)
    for rows in levels(calls["parent"]):
        above = np.where(parent[rows] >= 0, stack[parent[rows]], -1)
        level = pl.DataFrame({"above": above, "name": names.gather(rows)})
        distinct = level.unique(maintain_order=True).with_row_index("number", offset=texts.len())
        before = texts.gather(distinct.select(pl.when(pl.col("above") >= 0).then("above")).to_series())
        stack[rows] = level.join(distinct, on=["above", "name"], how="left", maintain_order="left")["number"].to_numpy()
        whole = pl.select(pl.when(before.is_null()).then(distinct["name"]).otherwise(before + ";" + distinct["name"])).to_series()
        texts = pl.concat([texts, whole.alias("text")])
    lines = (
        pl.DataFrame({"stack": stack, "ns": spent})
        .group_by("stack").agg(pl.col("ns").sum()).filter(pl.col("ns") > 0)
        .with_columns(pl.col("stack").replace_strict(pl.int_range(texts.len(), eager=True), texts).alias("text"))
        .sort("text").select(pl.format("{} {}\n", "text", "ns"))
    )  # fmt: skip
    with replacing(path) as file:
        write_rows(file, lines.to_series())
    return path


def nested_calls(tables: Tables) -> pl.DataFrame:
    """pid, tid, name, start_ns, end_ns, parent and depth of each call; every call lies inside its parent.

    Raises:
        CaptureError: the capture has neither Python calls nor operators.
    """
    source = tables.python_calls if tables.python_calls.height else tables.ops
    calls = source.select("pid", "tid", pl.col("name").cast(pl.String).fill_null("?"), "start_ns", "end_ns")
    calls = calls.filter(pl.col("end_ns") > pl.col("start_ns")).sort(["start_ns", "end_ns"], descending=[False, True])
    if not calls.height:
        raise CaptureError(
            "this capture has neither Python calls nor operators",
            cause="a flame graph shows calls of the host",
            fix="record with ProfilerActivity.CPU, and with_stack=True for Python calls",
        )
    # What starts where another call ends is not inside it.
    parent = parents(calls.with_columns(pl.col("end_ns") - 1))
    above, ends = row_numbers(parent), calls["end_ns"].to_numpy().copy()
    for rows in levels(parent)[1:]:
        ends[rows] = np.minimum(ends[rows], ends[above[rows]])
    kept = ends > calls["start_ns"].to_numpy()
    calls = calls.with_columns(pl.Series("end_ns", ends), parent).filter(pl.Series(kept))
    if not kept.all():
        calls = calls.with_columns(parents(calls.with_columns(pl.col("end_ns") - 1)))
    return calls.with_columns(pl.Series("depth", depths(calls["parent"])))

# SPDX-License-Identifier: Apache-2.0
"""The process that answers questions: maps the tables, starts the engine, gives up every right that it does not need, and waits.

After that it can open no file, write none, and use only so much more memory; a question that runs on is ended by the process
that asked (`engine.py`), and by the limit of processor time should that one be gone.
"""

from __future__ import annotations

import io
import os
import resource
import sys
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import polars as pl

from stepscope.tables import ALL_TABLES, Tables
from stepscope.tables.store import read_store
from stepscope.tables.union import with_keys

MOST_BYTES = 10_000_000  # of an answer
_WARM = "SELECT name, count(*) AS n, sum(x) AS s FROM warm WHERE x > 0 GROUP BY name ORDER BY s DESC LIMIT 5"
_MESSAGE = 500


def main(text: str) -> int:
    """Answer lines of JSON until standard input ends; `text` is JSON with store, rows, memory and seconds."""
    settings = orjson.loads(text)
    answers = sys.stdout.buffer
    tables = read_store(Path(settings["store"]), None)
    if tables is None or {name: tables[name].height for name in tables.filled()} != settings["rows"]:
        _answer(answers, {"error": "store"})
        return 1
    context = pl.SQLContext(frames=_relations(tables))
    _warm_up()
    _give_up_rights(settings["memory"])
    _answer(answers, {"ready": True})
    for line in sys.stdin.buffer:
        request = orjson.loads(line)
        _limit_processor_time(settings["seconds"])
        _respond(context, request["query"], request["limit"], answers)
    return 0


def _relations(tables: Tables) -> dict[str, pl.LazyFrame]:
    """All tables, the empty ones too, with their keys; categories as text, made only of the columns that a question names."""
    return {name: with_keys(name, tables[name]).lazy().with_columns(pl.col(pl.Categorical).cast(pl.String)) for name in ALL_TABLES}


def _warm_up() -> None:
    """Start the engine's threads and import what answering needs, while files can still be opened."""
    frame = pl.DataFrame({"name": ["a", "b"] * 50, "x": range(100), "y": [0.5] * 100})
    found = pl.SQLContext(frames={"warm": frame.lazy()}).execute(_WARM).head(5).collect()
    _bytes(_plain(found))
    for broken in ("SELECT", "SELECT nothing FROM warm"):
        try:
            pl.SQLContext(frames={"warm": frame.lazy()}).execute(broken).collect()
        except pl.exceptions.PolarsError as problem:
            str(problem)


def _give_up_rights(memory: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    address_space = pages * resource.getpagesize() + memory
    limits = {resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: 0}
    if pages:
        limits[resource.RLIMIT_AS] = address_space
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, limit))


def _limit_processor_time(seconds: float) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = usage.ru_utime + usage.ru_stime
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds * (os.cpu_count() or 1)) + 2, hard))


def _respond(context: pl.SQLContext[pl.LazyFrame], query: str, limit: int, answers: BinaryIO) -> None:
    try:
        found = _plain(context.execute(query).head(limit + 1).collect())
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as problem:  # noqa: BLE001 - whatever the engine raises is the answer to this question only
        _answer(answers, {"error": "query", "message": str(problem).strip().split("\n\n")[0][:_MESSAGE] or type(problem).__name__})
        return
    more = found.height > limit
    found = found.head(limit)
    size = found.estimated_size()
    if size > MOST_BYTES and found.height:
        more, found = True, found.head(found.height * MOST_BYTES // int(size))
        if not found.height:
            _answer(answers, {"error": "query", "message": f"one row has more than {MOST_BYTES:,} bytes"})
            return
    data = _bytes(found)
    _answer(answers, {"bytes": len(data), "more": more}, data)


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns of numbers, truth values and text only."""
    return frame.select(_plain_column(frame[name]) for name in frame.columns)


def _plain_column(column: pl.Series) -> pl.Series:
    kind = column.dtype
    plain = column
    if kind == pl.Binary:
        plain = column.bin.encode("hex")
    elif kind == pl.Decimal or kind == pl.Int128:
        plain = column.cast(pl.Float64)
    elif kind.is_nested():
        plain = pl.Series(column.name, [None if value is None else str(value) for value in column.to_list()], dtype=pl.String)
    elif not kind.is_numeric() and kind not in (pl.Boolean, pl.String):
        plain = column.cast(pl.String)
    return plain


def _bytes(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_ipc_stream(out)
    return out.getvalue()


def _answer(answers: BinaryIO, head: dict[str, Any], data: bytes = b"") -> None:
    answers.write(orjson.dumps(head) + b"\n" + data)
    answers.flush()

# SPDX-License-Identifier: Apache-2.0
"""The process that answers questions: maps the tables, starts the engine, gives up every right that it does not need, and waits.

After that it can open no file, write none, and use only so much more memory; a question that runs on is ended by the process
that asked (`engine.py`), and by the limit of processor time should that one be gone.
"""

from __future__ import annotations

import io
import os
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import orjson
import polars as pl

from stepscope.query.relations import Relations, unknown_relation
from stepscope.query.statement import parse
from stepscope.query.views.view import RankTables
from stepscope.tables.store import read_store

MOST_BYTES = 10_000_000  # of an answer
_WARM = "SELECT name, count(*) AS n, sum(x) AS s FROM warm WHERE x > 0 GROUP BY name ORDER BY s DESC LIMIT 5"
_MESSAGE = 500
Result = TypeVar("Result")
_NOT_FOUND = re.compile(r"relation '([^']*)' was not found")


def main() -> int:
    """Answer lines of JSON until standard input ends; the first line holds stores, views, memory and nice."""
    first = sys.stdin.buffer.readline()
    if not first:
        return 0
    settings = orjson.loads(first)
    os.nice(settings["nice"])
    answers = sys.stdout.buffer
    ranks = []
    for number, store in enumerate(settings["stores"]):
        tables = read_store(Path(store["folder"]), None)
        if tables is None or store["rows"] not in (None, {name: tables[name].height for name in tables.filled()}):
            _answer(answers, {"error": "store", "number": number})
            return 1
        ranks.append(RankTables(tables, store["path"]))
    views = _attempt(lambda: _views(ranks, settings["views"]), answers)
    if views is None:
        return 1
    relations = Relations(ranks, views)
    _warm_up()
    _give_up_rights(settings["memory"])
    _answer(answers, {"ready": True, "numbered": relations.numbered})
    while line := sys.stdin.buffer.readline():
        request = orjson.loads(line)
        _limit_processor_time(request["seconds"])
        _respond(relations, request["query"], request["limit"], answers)
    return 0


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


def _views(ranks: list[RankTables], names: list[str]) -> dict[str, list[pl.DataFrame]]:
    """The views that questions will name, computed while files can still be opened: our code loads modules as it runs."""
    if not names:
        return {}
    from stepscope.query.views.catalogue import VIEWS

    return {name: VIEWS[name].frames(ranks) for name in names}


def _attempt(make: Callable[[], Result], answers: BinaryIO) -> Result | None:
    """What `make` gives; None after the answer says what went wrong."""
    try:
        return make()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as problem:  # noqa: BLE001 - whatever the engine raises is the answer to this question only
        _answer(answers, {"error": "query", "message": _message(problem)})
        return None


def _respond(relations: Relations, query: str, limit: int, answers: BinaryIO) -> None:
    found = _attempt(lambda: _plain(_ask(relations, query, limit)), answers)
    if found is None:
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


def _ask(relations: Relations, query: str, limit: int) -> pl.DataFrame:
    statement = parse(query)
    if statement.kind == "show":
        return relations.show()
    if statement.kind == "describe":
        return relations.describe(statement.subject)
    context = pl.SQLContext(frames=relations.named(statement.names))
    return context.execute(query).head(limit + 1).collect()


def _message(problem: BaseException) -> str:
    text = str(problem).strip().split("\n\n")[0][:_MESSAGE] or type(problem).__name__
    missing = _NOT_FOUND.search(text)
    return unknown_relation(missing[1]) if missing else text


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

# SPDX-License-Identifier: Apache-2.0
"""Ask about paths, captures or tables: finds or writes their stores, and keeps the processes of this program."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

from stepscope.query.engine import Answer, Engine, Limits, Store, StoreChanged
from stepscope.tables import Tables
from stepscope.tables.store import write_store

if TYPE_CHECKING:
    import polars as pl

    from stepscope.capture import Capture

_copies: dict[int, Store] = {}  # of tables that live, by identity


def ask(what: Any, sql: str, *, limit: int, timeout: float) -> pl.DataFrame:
    """See `stepscope.query`."""
    answer = answer_about(sources(what), sql, limit=limit, timeout=timeout)
    if answer.more:
        warnings.warn(f"the answer was cut after {answer.frame.height:,} rows", stacklevel=3)
    return answer.frame


def answer_about(asked: Sequence[Capture | Tables], sql: str, *, limit: int, timeout: float) -> Answer:
    """The answer to a question about captures or tables, each a rank."""
    return with_stores(asked, lambda stores: engine(timeout).ask(stores, sql, limit))


def with_stores(asked: Sequence[Capture | Tables], use: Callable[[list[Store]], Answer]) -> Answer:
    """Use the stores of captures or tables; a store that proves to be damaged is written again."""
    stores = [store_of(one) for one in asked]
    for _ in stores:
        try:
            return use(stores)
        except StoreChanged as problem:
            stores[problem.number] = _copy(_tables(asked[problem.number]), stores[problem.number].path)
    return use(stores)


def sources(what: Any) -> list[Capture | Tables]:
    """The captures or tables that a caller means."""
    found: list[Capture | Tables] = []
    for one in what if isinstance(what, list | tuple) else [what]:
        if isinstance(one, Tables) or hasattr(one, "tables"):
            found.append(one)
        else:
            from stepscope.capture import open_all

            found += open_all(one)
    return found


@cache
def engine(timeout: float = Limits().seconds) -> Engine:
    """The processes that this program asks with one time limit."""
    made = Engine(replace(Limits(), seconds=timeout))
    atexit.register(made.close)
    return made


def store_of(one: Capture | Tables) -> Store:
    """The stored tables of a capture, or a copy of tables that have none."""
    if isinstance(one, Tables):
        return _copy(one, "")
    folder = one.stored()
    return Store(folder, str(one.path)) if folder is not None else _copy(one.tables, str(one.path))


def _tables(one: Capture | Tables) -> Tables:
    return one if isinstance(one, Tables) else one.tables


def _copy(tables: Tables, path: str) -> Store:
    number = id(tables)
    if number not in _copies:
        place = tempfile.mkdtemp(prefix="stepscope-query-")  # readable for its owner only
        write_store(Path(place) / "store", tables, [])
        _copies[number] = Store(Path(place) / "store", path)
        finalize(tables, _forget, number, place)
    return _copies[number]


def _forget(number: int, place: str) -> None:
    _copies.pop(number, None)
    shutil.rmtree(place, ignore_errors=True)

"""Builders of small tables: only the columns that a test is about, the rest null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from stepscope.tables import ALL_TABLES, Tables

MAIN, WORKER, DEQUEUE = 1, 2, 9


def rows(table: str, *records: Mapping[str, Any]) -> pl.DataFrame:
    schema = ALL_TABLES[table].schema
    return ALL_TABLES[table].conform(
        pl.DataFrame(list(records), schema={k: v for k, v in schema.items() if any(k in r for r in records)})
    )


def op(name: str, start: int, end: int, tid: int = MAIN, **more: object) -> dict[str, object]:
    return {"pid": 7, "tid": tid, "start_ns": start, "end_ns": end, "name": name, **more}


def ops(*records: Mapping[str, Any]) -> pl.DataFrame:
    ordered = sorted(records, key=lambda record: (record["start_ns"], -record["end_ns"]))
    return rows("ops", *ordered)


def task(start: int, end: int, **more: object) -> dict[str, object]:
    return {"device": 0, "stream": 2, "start_ns": start, "end_ns": end, "kind": "compute", "name": "MatMul", **more}


def kernels(*records: Mapping[str, Any]) -> pl.DataFrame:
    return rows("kernels", *records)


def collective(start: int, end: int, **more: object) -> dict[str, object]:
    return {"device": 0, "start_ns": start, "end_ns": end, "name": "hcom_allReduce__271_0_1", **more}


def collectives(*records: Mapping[str, Any]) -> pl.DataFrame:
    return rows("collectives", *records)


def queued(
    number: int, enqueue: tuple[int, int], dequeue: tuple[int, int], tid: int = MAIN, via: int = DEQUEUE
) -> list[dict[str, object]]:
    return [
        {"pid": 7, "tid": thread, "start_ns": span[0], "end_ns": span[1], "kind": kind, "correlation_id": number}
        for kind, thread, span in (("enqueue", tid, enqueue), ("dequeue", via, dequeue))
    ]


def queue(*pairs: list[dict[str, object]]) -> pl.DataFrame:
    return rows("queue", *[record for pair in pairs for record in pair])


def steps(*spans: tuple[int, int, int]) -> pl.DataFrame:
    return rows("steps", *[{"step": step, "pid": 7, "start_ns": start, "end_ns": end} for step, start, end in spans])


def api(start: int, end: int, connection: int, level: str = "node", name: str = "launch", tid: int = DEQUEUE) -> dict[str, object]:
    return {"pid": 7, "tid": tid, "start_ns": start, "end_ns": end, "level": level, "name": name, "connection_id": connection}


def api_calls(*records: Mapping[str, Any]) -> pl.DataFrame:
    return rows("api_calls", *records)


def tables(**frames: pl.DataFrame) -> Tables:
    return Tables(frames).check()

# SPDX-License-Identifier: Apache-2.0
"""ascend_pytorch_profiler[_n].db and msprof_*.db from tables: what they contain, in which order (docs/formats/outputs.md 12)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import polars as pl

from stepscope.analysis.flows import forward_backward_links
from stepscope.analysis.memory.blocks import record_rows
from stepscope.analysis.overlap import LAYERS, device_layers
from stepscope.formats.ascend.db.schema import ENUMS, OP, PROFILER_DB, SCHEMA_VERSION, enum_with
from stepscope.formats.ascend.db.string_ids import StringIds
from stepscope.formats.ascend.db.write.counters import counter_rows
from stepscope.formats.ascend.db.write.device import device_rows, metric_rows, overlap_rows
from stepscope.formats.ascend.db.write.host import api_rows, framework_rows, gc_rows, mark_rows, step_rows
from stepscope.formats.ascend.db.write.memory import memory_rows, on_device, runtime_memory_rows
from stepscope.formats.ascend.memory import MODULE_MEM
from stepscope.render.sqlite_file import new_database
from stepscope.render.sqlite_table import DbColumn, DbTable
from stepscope.tables import Facts, Tables

_ENUM_COLUMNS = (DbColumn("id", "I", key=True), DbColumn("name", "T"))


def write_profiler_db(tables: Tables, path: Path) -> None:
    """Write the database of one capture; `path` is replaced as a whole or left as it was.

    Args:
        tables: linked tables.
        path: its folder must exist.

    Raises:
        CaptureError: the folder or the disk does not take it.
    """
    strings = StringIds()
    enums = {name: enum_with(name, _used(tables, name)) for name in ENUMS}
    _write(path, enums, _all_rows(tables, strings), strings)


def write_msprof_db(tables: Tables, path: Path) -> None:
    """Write the database that msprof makes of a PROF_* folder: the same without framework and analysis.

    Args and errors are those of `write_profiler_db`; the tables need not be linked.
    """
    strings = StringIds()
    enums = {name: enum_with(name, _used(tables, name)) for name in ENUMS if name != "ENUM_OVERLAP_ANALYSIS_TYPE"}
    enums["ENUM_API_TYPE"] = {number: name for number, name in enums["ENUM_API_TYPE"].items() if number < OP}
    _write(path, enums, _runtime_rows(tables, strings), strings)


def _write(path: Path, enums: Mapping[str, dict[int, str]], rows: Iterator[tuple[str, pl.DataFrame]], strings: StringIds) -> None:
    with new_database(path) as file:
        for name, names in enums.items():
            file.fill(DbTable(name, _ENUM_COLUMNS), pl.DataFrame({"id": list(names), "name": list(names.values())}))
        for name, frame in _ahead(rows):
            file.fill(PROFILER_DB[name], frame)
        file.fill(PROFILER_DB["STRING_IDS"], strings.table())


def _ahead(parts: Iterator[tuple[str, pl.DataFrame]]) -> Iterator[tuple[str, pl.DataFrame]]:
    """The same parts, the next one being made while the last one is inserted: SQLite keeps only one core busy."""
    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = beside.submit(next, parts, None)
            yield part


def _used(tables: Tables, enum: str) -> list[str]:
    """Names of an enumeration that the capture has; old captures have some that are gone."""
    if enum == "ENUM_MODULE":
        names = tables["counters"].filter(pl.col("source") == MODULE_MEM)["name"]
    elif enum == "ENUM_HCCL_RDMA_TYPE":
        names = tables["transfers"]["rdma_type"]
    else:
        return []
    return list(names.unique().drop_nulls().cast(pl.String))


def _all_rows(tables: Tables, strings: StringIds) -> Iterator[tuple[str, pl.DataFrame]]:
    """Name and rows of every table, a few at a time: a large capture's tables do not all fit beside each other."""
    yield from _runtime_rows(tables, strings)
    layers = device_layers(tables, whole_device=True).sort("device", "start_ns", maintain_order=True)
    yield "OVERLAP_ANALYSIS", overlap_rows(layers, LAYERS)
    yield from memory_rows(record_rows(tables["memory_events"].filter(on_device())), tables["allocations"], strings).items()
    yield from framework_rows(tables, forward_backward_links(tables["ops"]), strings).items()
    yield "STEP_TIME", step_rows(tables)
    yield "GC_RECORD", gc_rows(tables)


def _runtime_rows(tables: Tables, strings: StringIds) -> Iterator[tuple[str, pl.DataFrame]]:
    """The part that the runtime and the devices recorded."""
    yield from _capture_rows(tables)
    yield from device_rows(tables, strings).items()
    yield "TASK_PMU_INFO", metric_rows(tables, strings)
    yield from api_rows(tables, strings).items()
    yield "MSTX_EVENTS", mark_rows(tables, strings)
    yield from counter_rows(tables, strings)
    yield "NPU_OP_MEM", runtime_memory_rows(tables, strings)


def _capture_rows(tables: Tables) -> Iterator[tuple[str, pl.DataFrame]]:
    facts = tables.facts
    yield "META_DATA", _meta(facts)
    if facts.host_uid or facts.host_name:
        # The vendor's tool writes 0 for a host that has no number.
        yield "HOST_INFO", pl.DataFrame({"hostUid": [facts.host_uid or "0"], "hostName": [facts.host_name]})
    devices = sorted({*facts.device_ids, *tables["kernels"]["device"].unique().drop_nulls()})
    yield "RANK_DEVICE_MAP", pl.DataFrame({"rankId": [facts.rank] * max(1, len(devices)), "deviceId": devices or [-1]})
    names = {int(number): name for number, name in facts.device_names.items()}
    yield (
        "NPU_INFO",
        pl.DataFrame(
            {"id": devices, "name": [names.get(device) for device in devices]}, schema={"id": pl.Int64, "name": pl.String}
        ),
    )
    start, end = facts.session_start_ns, facts.session_end_ns
    if start is None:
        start, end = _extent(tables)
    if start is not None:
        # docs/formats/outputs.md 12.2: a session without end lasted 30 minutes.
        yield (
            "SESSION_TIME_INFO",
            pl.DataFrame({"startTimeNs": [start], "endTimeNs": [end if end is not None else start + 30 * 60 * 10**9]}),
        )


def _meta(facts: Facts) -> pl.DataFrame:
    major, minor, micro = SCHEMA_VERSION.split(".")
    rows = {
        "SCHEMA_VERSION": SCHEMA_VERSION,
        "SCHEMA_VERSION_MAJOR": major,
        "SCHEMA_VERSION_MINOR": minor,
        "SCHEMA_VERSION_MICRO": micro,
        **{key: orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode() for key, value in facts.metadata.items()},
    }
    return pl.DataFrame({"name": list(rows), "value": list(rows.values())})


def _extent(tables: Tables) -> tuple[int | None, int | None]:
    spans = [
        tables[name].select(pl.col("start_ns").min(), pl.col("end_ns").max())
        for name in ("ops", "api_calls", "kernels", "collectives")
    ]
    both = pl.concat(spans).drop_nulls()
    return (both["start_ns"].to_numpy().min().item(), both["end_ns"].to_numpy().max().item()) if both.height else (None, None)

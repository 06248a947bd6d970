# SPDX-License-Identifier: Apache-2.0
"""An export of Nsight Systems as tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.gpu.collectives import collectives
from stepscope.formats.nsys import device, host, schema
from stepscope.formats.nsys.database import Export
from stepscope.tables import ALL_TABLES, TEXT, Facts, Tables, issues

_TIMES = {"start", "timestamp", "rawTimestamp"}
# Tables about the report itself.
_ABOUT = re.compile(r"ENUM_.*|TARGET_INFO_.*|META_DATA_.*|ANALYSIS_.*|DIAGNOSTIC_EVENT|PROFILER_OVERHEAD|sqlite_.*")
_KEPT_SETTINGS = ("EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
# Unknown about a collective without its operator; NCCL's NVTX payloads are not exported.
_UNKNOWN = {"op_type": TEXT, "count": pl.Int64(), "data_type": TEXT}


def read(path: Path) -> Tables:
    """Read a SQLite export (`nsys export --type sqlite`).

    Raises:
        CaptureError: the file is not such an export, or has no event.
    """
    with Export(path) as db:
        tasks, waits = device.tasks(db)
        calls = host.api_calls(db)
        operators, marks = host.ranges(db)
        _count_unread(db)
        tables = Tables(
            {
                "ops": operators,
                "api_calls": calls,
                "marks": marks,
                "kernels": ALL_TABLES["kernels"].conform(tasks),
                "waits": waits,
                "collectives": collectives(tasks.with_columns(pl.lit(None, kind).alias(name) for name, kind in _UNKNOWN.items())),
            }
        )
        if not any(tables[name].height for name in ("ops", "api_calls", "marks", "kernels")):
            raise CaptureError(
                "the export has no event",
                where=str(path),
                cause="; ".join(f"{row['issue']}: {row['detail']}" for part in db.quality for row in part.to_dicts())
                or "its tables are empty",
                fix="record with: nsys profile --trace cuda,nvtx, then export again",
            )
        return tables.replace(meta=_facts(db, tables).table()).with_quality(*db.quality)


def _count_unread(db: Export) -> None:
    """Count the events of tables that are not shown, such as GPU metrics or MPI."""
    for table, columns in db.columns.items():
        if table not in schema.COLUMNS and not _ABOUT.fullmatch(table) and _TIMES & set(columns):
            db.lost(issues.UNSUPPORTED_KIND, db.count(table), table)


def _facts(db: Export, tables: Tables) -> Facts:
    system = dict(db.table("TARGET_INFO_SYSTEM_ENV").drop_nulls().select("name", "value").iter_rows())
    gpus = db.table("TARGET_INFO_GPU").drop_nulls("id")
    details = db.table("ANALYSIS_DETAILS").drop_nulls(["startTime", "stopTime"])
    start, stop = details.select("startTime", "stopTime").row(0) if details.height else (None, None)
    valid = start is not None and 0 <= start <= stop < 1 << 61
    return Facts(
        source="nsys",
        framework="pytorch" if (tables["ops"]["scope"] == 0).any() else "",
        device_kind="cuda",
        host_name=system.get("Hostname", ""),
        process_name=_process_name(db, tables),
        device_ids=tuple(sorted(tables["kernels"]["device"].drop_nulls().unique().to_list())),
        device_names={str(row["id"]): row["name"] for row in gpus.to_dicts() if row["name"]},
        device_properties={str(row["id"]): _properties(row) for row in gpus.to_dicts()},
        activities=tuple(
            word for word, there in (("CPU", tables["ops"].height > 0), ("CUDA", tables["kernels"].height > 0)) if there
        ),
        record_shapes=tables["ops"]["shapes"].count() > 0,
        session_start_ns=start + db.base_ns if valid else None,
        session_end_ns=stop + db.base_ns if valid else None,
        metadata={key: db.settings[key] for key in _KEPT_SETTINGS if key in db.settings},
    )


def _properties(gpu: Mapping[str, Any]) -> dict[str, Any]:
    """As a Kineto trace names them, so that both are shown alike."""
    named = {
        "id": gpu["id"], "name": gpu["name"], "totalGlobalMem": gpu["totalMemory"], "numSms": gpu["smCount"],
        "computeMajor": gpu["computeMajor"], "computeMinor": gpu["computeMinor"],
    }  # fmt: skip
    return {key: value for key, value in named.items() if value is not None}


def _process_name(db: Export, tables: Tables) -> str:
    """The program whose processes used a GPU, where they are all the same."""
    rows = db.table("PROCESSES").drop_nulls(["pid", "name"])
    used = rows.filter(pl.col("pid").is_in(tables["kernels"]["pid"].drop_nulls().unique().implode()))
    names = used["name"].unique().to_list()
    return names[0] if len(names) == 1 else ""

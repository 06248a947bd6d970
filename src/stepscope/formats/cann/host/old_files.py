# SPDX-License-Identifier: Apache-2.0
"""Host records of 2021 and 2022: calls, tasks and the operators they belong to (docs/formats/cann.md 6.11)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.host.codes import AI_CPU, CORES, code_names
from stepscope.formats.cann.host.op_tensors import TENSOR_COLUMNS, tensor_texts
from stepscope.formats.cann.layouts import (
    OLD_ACL_API,
    OLD_RUNTIME_API,
    OLD_STEP_INFO,
    OLD_TASK_DESC,
    OLD_TASK_TRACK,
    OLD_TENSOR_DATA,
    TENSOR_INFO,
    Layout,
)
from stepscope.formats.cann.records import concatenate, read_records, text_lines
from stepscope.tables import issues, lost

_ACL_FILES = ("AclModule.acl_op", "AclModule.acl_model", "AclModule.acl_rts", "AclModule.acl_others")
_DESCRIPTIONS = ("Framework.task_desc_info", "Framework.single_op_task_info")
_HASHES = ("Framework.hash_dic", "AclModule.hash_dic")
# Known, and nothing that a table needs: which graph a model was built from.
_UNUSED = ("Framework.id_map_info",)
_FILES = (
    *_ACL_FILES, *_DESCRIPTIONS, *_HASHES, *_UNUSED, "Framework.tensor_data_info", "Framework.step_info", "Runtime.task_track",
    "Runtime.api",
)  # fmt: skip
_NO_MODEL = 0xFFFF_FFFF
_STEP_BEGIN, _STEP_END = 0, 1
_NAMED = re.compile(rf"({'|'.join(map(re.escape, _FILES))})(?:\.([0-9]{{1,4}}))?")
_AS_TEXT = 1  # kind of a name that stands in the record itself
_KEY = ["device", "stream", "task_id", "batch_id"]


@dataclass(frozen=True)
class OldHost:
    """Frames as in `HostSide`, with the columns that these records have."""

    calls: pl.DataFrame
    tasks: pl.DataFrame
    descriptions: pl.DataFrame
    steps: pl.DataFrame  # columns of table `steps`
    lost: tuple[pl.DataFrame, ...]


def old_kinds(part: Part) -> list[str]:
    """Kinds of files in a folder that hold such records."""
    return [kind for kind in part.groups if _NAMED.fullmatch(kind)]


def read_old_host(host: Part | None, *, batches: bool) -> OldHost | None:
    """What such records say; None where there are none. `batches` says whether the rounds of task numbers are told apart."""
    if host is None or not old_kinds(host):
        return None
    losses: list[pl.DataFrame] = []
    hashes = _hashes(host, losses)
    rows, device = _rows(host, _DESCRIPTIONS, OLD_TASK_DESC, losses)
    described = pl.DataFrame(
        {
            "op_name": _names(rows, "name", hashes),
            "op_type": _names(rows, "op_type", hashes, "type_kind", "type_hash"),
            "core": code_names(rows["core"], CORES),
            "block_num": np.minimum(rows["block_num"] & 0xFFFF, 1 << 16).astype(np.int64),
        }
    )
    key = _keys(rows, device, batches)
    tensors, tensor_device = _rows(host, ("Framework.tensor_data_info",), OLD_TENSOR_DATA, losses)
    texts = _tensors(tensors, _keys(tensors, tensor_device, batches), key)
    tracks, track_device = _rows(host, ("Runtime.task_track",), OLD_TASK_TRACK, losses)
    types = _keys(tracks, track_device, batches).with_columns(host_type=_texts(tracks["task_type"]))
    of_cpu = pl.Series(rows["core"] == AI_CPU)
    queued = key.join(types.unique(_KEY, keep="last", maintain_order=True), on=_KEY, how="left", maintain_order="left")
    by_core = pl.select(pl.when(of_cpu).then(pl.lit("KERNEL_AICPU")).otherwise(pl.lit("KERNEL_AICORE"))).to_series()
    operators = queued.with_columns(
        pl.coalesce("host_type", by_core).alias("host_type"),
        pl.Series("stamp_ns", host.clock.ns(np.ascontiguousarray(rows["stamp"]))),
        pl.Series("tid", rows["tid"].astype(np.int64)),
        pl.Series("model_id", rows["model"].astype(np.int64)).replace(_NO_MODEL, None),
        pl.lit("compute").alias("role"),
        description=pl.int_range(pl.len(), dtype=pl.Int64),
    )
    plain = types.with_columns(
        pl.Series("stamp_ns", host.clock.ns(np.ascontiguousarray(tracks["stamp"]))),
        pl.Series("tid", tracks["tid"].astype(np.int64)),
        pl.lit("plain").alias("role"),
    ).join(key, on=_KEY, how="anti", maintain_order="left")
    tasks = pl.concat([operators, plain], how="diagonal").sort("stamp_ns", maintain_order=True)
    return OldHost(_calls(host, losses), tasks, described.hstack(texts), _steps(host, losses), tuple(losses))


def _rows(
    host: Part, names: tuple[str, ...], layout: Layout, losses: list[pl.DataFrame]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Records of some files, and the device that the name of each file tells."""
    found, devices = [], []
    for kind in host.groups:
        named = _NAMED.fullmatch(kind)
        if named and named[1] in names:
            records = read_records(host, replace(layout, file=kind))
            losses += records.lost
            found.append(records.rows)
            devices.append(np.full(len(records), int(named[2] or 0)))
    rows = concatenate(found or [np.empty(0, layout.dtype)], layout)
    return rows, np.concatenate(devices) if devices else np.empty(0, np.int64)


def _keys(rows: npt.NDArray[Any], device: npt.NDArray[Any], batches: bool) -> pl.DataFrame:
    batch = rows["batch"].astype(np.int64) if batches else np.zeros(len(rows), np.int64)
    columns = {
        "device": device.astype(np.int32),
        "stream": rows["stream"].astype(np.int64),
        "task_id": rows["task"].astype(np.int64),
    }
    return pl.DataFrame({**columns, "batch_id": batch})


def _tensors(rows: npt.NDArray[Any], of: pl.DataFrame, key: pl.DataFrame) -> pl.DataFrame:
    """Texts of the tensors of each operator, in the records' newer layout."""
    numbered = key.with_row_index("owner").unique(_KEY, keep="last", maintain_order=True)
    owner = of.join(numbered, on=_KEY, how="left", maintain_order="left")["owner"]
    known = owner.is_not_null().to_numpy()
    records = np.zeros(int(known.sum()), TENSOR_INFO.dtype)
    records["count"], records["tensors"] = rows["count"][known], rows["tensors"][known]
    if not len(records):
        return pl.DataFrame({name: pl.repeat(None, key.height, dtype=pl.String, eager=True) for name in TENSOR_COLUMNS})
    return tensor_texts(records, owner.drop_nulls().cast(pl.Int64).to_numpy(), key.height)


def _steps(host: Part, losses: list[pl.DataFrame]) -> pl.DataFrame:
    """Steps of models from their begin and end; the n-th begin of a step belongs to its n-th end."""
    rows, device = _rows(host, ("Framework.step_info",), OLD_STEP_INFO, losses)
    marks = pl.DataFrame(
        {
            "device": device,
            "model": rows["model"].astype(np.int64),
            "step": np.minimum(rows["index"], np.uint64(1 << 62)).astype(np.int64),
            "tag": rows["step_tag"].astype(np.int64),
            "time_ns": host.clock.ns(np.ascontiguousarray(rows["stamp"])),
        }
    ).sort("time_ns", maintain_order=True)
    key = ["device", "model", "step"]
    turn = pl.int_range(pl.len()).over(*key, "tag").alias("turn")
    begins, ends = (marks.with_columns(turn).filter(pl.col("tag") == tag) for tag in (_STEP_BEGIN, _STEP_END))
    spans = begins.join(ends, on=[*key, "turn"], suffix="_end").filter(pl.col("time_ns_end") >= pl.col("time_ns"))
    losses.append(lost(issues.START_WITHOUT_END, "Framework.step_info", begins.height - spans.height, "steps"))
    losses.append(lost(issues.END_WITHOUT_START, "Framework.step_info", ends.height - spans.height, "steps"))
    # Every device has its own file about the steps of the process.
    steps = spans.group_by("step").agg(start_ns=pl.col("time_ns").min(), end_ns=pl.col("time_ns_end").max())
    return steps.with_columns(inflated=pl.lit(False)).sort("start_ns", "step")


def _calls(host: Part, losses: list[pl.DataFrame]) -> pl.DataFrame:
    """Calls of both kinds of files, by start."""
    frames = []
    for names, layout, level in ((_ACL_FILES, OLD_ACL_API, "acl"), (("Runtime.api",), OLD_RUNTIME_API, "runtime")):
        rows, _ = _rows(host, names, layout, losses)
        name = _texts(rows["name"])
        frames.append(
            pl.DataFrame(
                {
                    "tid": rows["tid"].astype(np.int64),
                    "start_ns": host.clock.ns(np.ascontiguousarray(rows["begin"])),
                    "end_ns": host.clock.ns(np.ascontiguousarray(rows["end"])),
                    "level": pl.repeat(level, len(rows), dtype=pl.String, eager=True),
                    "name": name,
                    "type": name,
                    "mode": name,
                    "has_begin": rows["begin"] != 0,
                }
            )
        )
    calls = pl.concat(frames).filter(pl.col("end_ns") >= pl.col("start_ns")).sort("start_ns", maintain_order=True)
    return calls.with_columns(pid=pl.lit(host.pid, pl.Int64), connection_id=pl.int_range(1, pl.len() + 1, dtype=pl.Int64))


def _hashes(host: Part, losses: list[pl.DataFrame]) -> dict[int, str]:
    """Texts by their hash, one `hash:text` per line."""
    groups = [
        group for kind, found in host.groups.items() if (named := _NAMED.fullmatch(kind)) and named[1] in _HASHES for group in found
    ]
    lines, bad = text_lines(groups)
    losses += bad
    pairs = (line.partition(":") for line in lines)
    return {int(number): text for number, colon, text in pairs if colon and number.isdecimal() and len(number) <= 20}


def _names(
    rows: npt.NDArray[Any], text: str, hashes: Mapping[int, str], kind: str = "name_kind", number: str = "name_hash"
) -> pl.Series:
    looked_up = [hashes.get(value, str(value)) for value in rows[number].tolist()]
    in_record = pl.Series(rows[kind] == _AS_TEXT)
    named: pl.Series = _texts(rows[text]).zip_with(in_record, pl.Series(looked_up, dtype=pl.String))
    return named


def _texts(values: npt.NDArray[Any]) -> pl.Series:
    """Texts up to their first zero byte."""
    return pl.Series([value.split(b"\0", 1)[0].decode("utf-8", "replace") for value in values.tolist()], dtype=pl.String)

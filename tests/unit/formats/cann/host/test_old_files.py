# SPDX-License-Identifier: Apache-2.0
"""Host records of 2021 and 2022 give device tasks their operators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from cann_device_folder import device_part, filled

from stepscope.formats import cann
from stepscope.formats.cann.chips import obstacle
from stepscope.formats.cann.layouts import (
    HOST_MAGIC,
    HWTS,
    OLD_ACL_API,
    OLD_HOST_LAYOUTS,
    OLD_TASK_DESC,
    OLD_TASK_TRACK,
    OLD_TENSOR_DATA,
    STARS_MAGIC,
)

OPERATORS = (
    {"core": 0, "name_kind": 1, "name": b"Conv2D_1", "type_kind": 0, "block_num": 32, "stream": 7, "task": 1, "tid": 9},
    {"core": 1, "name_kind": 0, "type_kind": 1, "op_type": b"GetNext", "stream": 7, "task": 2, "tid": 9},
)


def write(folder: Path) -> Path:
    """A capture of a 910A with two operators and an event, and its old host files."""
    spans = ((1, 1100, 1200), (2, 1300, 1400), (3, 1500, 1510))
    kinds = [(kind, task, at) for task, start, end in spans for kind, at in ((0, start), (1, end))]
    hwts = filled(
        HWTS,
        (
            {"head": kind | number % 16 << 4, "magic": STARS_MAGIC, "stream": 7, "task": task, "counter": at}
            for number, (kind, task, at) in enumerate(kinds)
        ),
    )
    device_part(folder, (HWTS, hwts), chip=1)
    host = folder / "PROF_1" / "host"
    (host / "data").mkdir(parents=True)
    info = {"platform_version": "1", "CPU": [{"Frequency": ""}], "DeviceInfo": [], "pid": "4", "drvVersion": 1}
    (host / "info.json").write_text(json.dumps(info))
    (host / "sample.json").write_text("{}")
    (host / "start_info").write_text(json.dumps({"clockMonotonicRaw": "0", "collectionTimeBegin": "0"}))
    (host / "host_start.log").write_text("[Host]\nclock_monotonic_raw: 0\ncntvct: 0\n")
    save(host, OLD_TASK_DESC, *OPERATORS, name_hash={1: 555}, type_hash={0: 556})
    save(
        host,
        OLD_TASK_TRACK,
        *({"task_type": name, "stream": 7, "task": task} for name, task in ((b"KERNEL_AICPU", 2), (b"EVENT_RECORD", 3))),
    )
    save(host, OLD_ACL_API, {"begin": 1000, "end": 1500, "tid": 9, "name": b"aclmdlExecute"})
    tensors = filled(OLD_TENSOR_DATA, [{"magic": HOST_MAGIC, "stream": 7, "task": 1, "count": 1}])
    tensors["tensors"]["shape"][0, 0, :2] = (4, 3)
    (host / "data" / "Framework.tensor_data_info.0.slice_0").write_bytes(tensors.tobytes())
    (host / "data" / "Framework.hash_dic.0.slice_0").write_text("555:GetNext_5\n556:Conv2D\n")
    (host / "data" / "Framework.step_info.0.slice_0").write_bytes(bytes(64))
    return folder / "PROF_1"


def save(host: Path, layout, *records: dict[str, Any], **hashes: dict[int, int]) -> None:
    rows = filled(layout, ({"magic": HOST_MAGIC, **record} for record in records))
    for field, values in hashes.items():
        for place, value in values.items():
            rows[field][place] = value
    (host / "data" / f"{layout.file}.0.slice_0").write_bytes(rows.tobytes())


def test_device_tasks_have_the_operators_of_the_host(tmp_path: Path):
    prof = write(tmp_path)
    assert obstacle(prof) == ""
    tables = cann.read(prof)
    columns = ["name", "op_type", "core", "host_task_type", "block_num", "input_shapes"]
    assert tables.kernels.select(columns).rows() == [
        ("Conv2D_1", "Conv2D", "AI_CORE", "KERNEL_AICORE", 32, "4,3"),
        ("GetNext_5", "GetNext", "AI_CPU", "KERNEL_AICPU", 0, None),
        ("EVENT_RECORD", None, None, "EVENT_RECORD", None, None),
    ]
    assert tables.api_calls.select("name", "level", "start_ns", "end_ns").rows() == [("aclmdlExecute", "acl", 1000, 1500)]
    assert "unknown-file" not in tables.quality["issue"].cast(pl.String).to_list()


@pytest.mark.parametrize("layout", OLD_HOST_LAYOUTS, ids=lambda layout: layout.file)
def test_any_bytes_are_read_without_an_error(tmp_path: Path, layout):
    prof = write(tmp_path)
    rows = np.random.default_rng(5).integers(0, 256, 40 * layout.size, np.uint8).view(layout.dtype)
    rows["magic"] = HOST_MAGIC
    (prof / "host" / "data" / f"{layout.file}.0.slice_0").write_bytes(rows.tobytes() + b"cut")
    assert cann.read(prof).kernels.height == 3

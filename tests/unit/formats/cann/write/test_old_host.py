# SPDX-License-Identifier: Apache-2.0
"""Host records of 2021 and 2022: what is written is what is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from prof_folder import MS, SESSION, T0

from stepscope.formats import cann
from stepscope.formats.cann.folder import open_prof
from stepscope.formats.cann.layouts import OLD_HOST_LAYOUTS, OLD_ID_MAP, TENSOR
from stepscope.formats.cann.records import read_records
from stepscope.formats.cann.write.folder import ProfWriter
from stepscope.formats.cann.write.old_host import OldHostWriter
from stepscope.formats.cann.write.other_chips import device_writer


def write(folder: Path) -> Path:
    """Two operators and an event on a 910A, in two steps of model 3."""
    session = replace(SESSION, chip=replace(SESSION.chip, platform=1))
    at = T0 + MS * np.arange(1, 4)
    with ProfWriter(folder, session) as writer:
        device_writer(writer, 0).tasks(stream=7, task=np.array([1, 2, 3]), start_ns=at + 500, end_ns=at + 900)
        host = OldHostWriter(writer, 0)
        host.operators(name=["Conv2D_1"], op_type=[556], core=0, stream=7, task=1, at_ns=at[:1], blocks=32, tid=9, model=3)
        host.operators(name=[555], op_type=["GetNext"], core=1, stream=7, task=2, at_ns=at[1:2], tid=9)
        host.hashes({555: "GetNext_5", 556: "Conv2D"})
        tensors = np.zeros((1, 5), TENSOR)
        tensors["shape"][0, 0, :2] = (4, 3)
        host.tensors(stream=7, task=1, tensors=tensors, count=1, at_ns=at[:1])
        host.tasks(task_type=["KERNEL_AICPU", "EVENT_RECORD"], stream=7, task=[2, 3], at_ns=at[1:])
        host.calls(name=["aclmdlExecute"], start_ns=at[:1], end_ns=at[:1] + 700, tid=9, acl="acl_model")
        host.calls(name=["rtKernelLaunch"], start_ns=at[:1] + 10, end_ns=at[:1] + 20, tid=9)
        host.steps(index=[1, 1, 2, 2, 3], tag=[0, 1, 0, 1, 0], at_ns=T0 + MS * np.arange(1, 6), model=3)
        host.graphs(graph=[11], model=3, session=5, mode=1, at_ns=at[:1])
        writer.close(T0 + 9 * MS)
    return writer.path


def test_operators_calls_and_steps_come_back(tmp_path: Path):
    tables = cann.read(write(tmp_path))
    columns = ["name", "op_type", "core", "host_task_type", "block_num", "input_shapes", "model_id"]
    assert tables.kernels.select(columns).rows() == [
        ("Conv2D_1", "Conv2D", "AI_CORE", "KERNEL_AICORE", 32, "4,3", 3),
        ("GetNext_5", "GetNext", "AI_CPU", "KERNEL_AICPU", 0, None, None),
        ("EVENT_RECORD", None, None, "EVENT_RECORD", None, None, None),
    ]
    assert tables.api_calls.select("name", "level").rows() == [("aclmdlExecute", "acl"), ("rtKernelLaunch", "runtime")]
    assert tables.steps.select("step", "start_ns", "end_ns").rows() == [(1, T0 + MS, T0 + 2 * MS), (2, T0 + 3 * MS, T0 + 4 * MS)]
    lost = tables.quality.filter(pl.col("source") == "Framework.step_info")
    assert lost.select(pl.col("issue").cast(pl.String), "count", "detail").rows() == [("start-without-end", 1, "steps")]
    assert "unknown-file" not in tables.quality["issue"].cast(pl.String).to_list()


def test_every_kind_is_written(tmp_path: Path):
    host = open_prof(write(tmp_path)).host
    assert host is not None
    written = {kind.removesuffix(".0") for kind in host.groups if not kind.startswith("additional.")}
    assert written == {layout.file for layout in OLD_HOST_LAYOUTS} - {"AclModule.acl_op"} | {
        "AclModule.acl_model",
        "Framework.hash_dic",
    }
    [graph] = read_records(host, replace(OLD_ID_MAP, file="Framework.id_map_info.0")).rows[
        ["tag", "graph", "model", "session", "mode"]
    ]
    assert graph.tolist() == (26, 11, 3, 5, 1)

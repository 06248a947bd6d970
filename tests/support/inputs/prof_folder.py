# SPDX-License-Identifier: Apache-2.0
"""A small raw folder with every kind of record our writers know, whose numbers a reader can check by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stepscope.formats.cann.write.device import MIX_AIC, DeviceWriter
from stepscope.formats.cann.write.folder import ProfWriter
from stepscope.formats.cann.write.host import HostWriter
from stepscope.formats.cann.write.other_chips import device_writer
from stepscope.formats.cann.write.settings import A2, Chip, Session
from stepscope.formats.cann.write.type_names import ACL, COMMUNICATION, LAUNCH, MASTER, NODE, RUNTIME, RUNTIME_CALLS

T0 = 1_700_000_000_000_000_000  # start of the session
MS = 1_000_000
PID, TID, STREAM = 4242, 77, 5
SESSION = Session(PID, T0, 5_000_000_000_000, chip=Chip(counter_mhz=1000.0))  # one tick is one nanosecond
LLC_READ = [0x00, 0x01, 0x02, 0x13, 0x20, 0x22, 0x34, 0x36]  # events of a read of the last-level cache
OPS = 6  # Add, MatMul, FlashAttention (MIX), copy, AI CPU, all-reduce


def write(parent: Path, session: Session = SESSION, **options: Any) -> Path:
    """Six operators one millisecond apart: host call 100 to 500 us, device 600 to 900 us after it."""
    with ProfWriter(parent, session, **options) as writer:
        host, device = HostWriter(writer), device_writer(writer, 0)
        if session.chip.platform == A2:
            host.wide_streams(tid=TID, at_ns=T0 + 1000)
        begin = T0 + MS * (1 + np.arange(OPS))
        _calls(writer, host, begin)
        _descriptions(host, begin)
        numbers = host.tasks(
            device=0, stream=STREAM, tid=TID, at_ns=begin + 400_000, task_type=np.array([66, 0, 108, 5, 1, 14]),
            kernel=["add_kernel", "matmul_kernel", "flash_kernel", "", "cpu_kernel", ""],
        )  # fmt: skip
        host.copies(tid=TID, at_ns=begin[3:4] + 400_000, bytes=4096, direction=1)
        host.collectives(tid=TID, at_ns=begin[5:6] + 200_000, data_type=4, algorithm="RING", count=1024, group="world")
        host.transfers(
            tid=TID, at_ns=begin[5:6] + 350_000, name="Notify_Wait", group="world", local_rank=0, remote_rank=1, rank_size=2,
            plane=0, notify=9, estimated_us=1.5, bytes=512, data_type=4, link=1, transport=0,
        )  # fmt: skip
        host.marks(pid=PID, tid=TID, start_ns=T0 + MS, end_ns=T0 + 7 * MS, mark=1, message="step " + "x" * 200)
        host.memory(
            tid=TID,
            at_ns=begin[:1] + 150_000,
            address=4096,
            bytes=np.array([512]),
            name="Add_1",
            allocated=1024,
            reserved=2048,
            device=0,
        )
        _device(device, begin, numbers.task)
        writer.close(T0 + 10 * MS)
    return writer.path


def _calls(writer: ProfWriter, host: HostWriter, begin: Any) -> None:
    names = ["Add_1", "MatMul_1", "Flash_1", "AiCpu_1", "hcom_allReduce_"]
    launched = begin[[0, 1, 2, 4, 5]]
    types = np.array([writer.acl_type(f"aclnn{name}") for name in ("Add", "MatMul", "Flash", "Copy", "AiCpu", "AllReduce")])
    host.calls(level=ACL, type=types, tid=TID, start_ns=begin + 50_000, end_ns=begin + 550_000)
    host.calls(level=NODE, type=LAUNCH, tid=TID, start_ns=launched + 100_000, end_ns=launched + 500_000, item=names)
    runtime = RUNTIME_CALLS["KernelLaunchWithHandle"]
    host.calls(level=RUNTIME, type=runtime, tid=TID, start_ns=begin + 380_000, end_ns=begin + 420_000)
    at = begin[5:6]
    host.calls(level=COMMUNICATION, type=MASTER, tid=TID, start_ns=at + 300_000, end_ns=at + 450_000, item=["Notify_Wait"])


def _descriptions(host: HostWriter, begin: Any) -> None:
    names, types = (
        ["Add_1", "MatMul_1", "Flash_1", "AiCpu_1", "hcom_allReduce_"],
        ["Add", "MatMulV2", "Flash", "Where", "allReduce"],
    )
    at = begin[[0, 1, 2, 4, 5]] + 200_000
    host.operators(
        tid=TID, at_ns=at, name=names, op_type=types, task_type=np.array([2, 0, 4, 1, 9]), blocks=np.array([40, 20, 20, 0, 0]),
        mix_ratio=np.array([0, 0, 2, 0, 0]),
    )  # fmt: skip
    host.attributes(tid=TID, at_ns=at[:1], name="Add_1", attributes="alpha=1")
    shape = np.zeros((9, 8), np.uint32)
    shape[:, 0], shape[:, 1] = 2, 1 + np.arange(9)
    host.tensors(
        tid=TID, at_ns=at[:2], name=["Add_1", "MatMul_1"], op=np.array([0, 0, 0, 1, 1, 1, 1, 1, 1]),
        kind=np.array([0, 0, 1, 0, 0, 0, 0, 0, 1]), format=2, dtype=1, shape=shape,
    )  # fmt: skip
    host.contexts(tid=TID, at_ns=at[2:3], name=["Flash_1"])


def _device(device: DeviceWriter, begin: Any, task: Any) -> None:
    start, end = begin + 600_000, begin + 900_000
    device.tasks(
        stream=STREAM,
        task=task,
        start_ns=start,
        end_ns=end,
        sqe=np.array([0, 0, 0, 11, 1, 7]),
        mix=np.array([0, 0, MIX_AIC, 0, 0, 0]),
    )
    for at, core in ((0, "AIV"), (1, "AIC"), (2, "MIX_AIC")):
        one = slice(at, at + 1)
        span = {"start_ns": start[one], "end_ns": end[one]}
        device.counters(stream=STREAM, task=task[one], core=core, cycles=495_000 * 20, counters=np.arange(1, 9) * 1000, **span)
    blocks = np.arange(40)
    device.block_counters(
        stream=STREAM, task=task[2], core="MIX_AIC", vector=1, core_id=blocks, block=blocks // 2, sub_block=blocks % 2, cycles=1000,
        counters=np.arange(1, 9), start_ns=np.full(40, start[2]), end_ns=np.full(40, end[2]),
    )  # fmt: skip
    device.frequency(at_ns=T0 + MS * np.arange(60), value=1650)
    samples = T0 + MS * np.arange(4)
    device.hbm(
        at_ns=np.repeat(samples, 8), event=np.tile([0, 1], 16), instance=np.tile(np.repeat(np.arange(4), 2), 4), count=1 << 20
    )
    device.cache(at_ns=np.repeat(samples, 16), event=np.tile(LLC_READ, 8), instance=np.tile(np.repeat([0, 1], 8), 4), count=100)
    device.memory(at_ns=samples, hbm=9 << 30)
    device.memory(at_ns=samples, hbm=5 << 30, app=True)
    device.module_memory(at_ns=samples, module=33, bytes=1 << 30)
    device.cache_of_tasks(stream=STREAM, task=task[:2], events=np.full((2, 8), 64))
    device.ai_cpu(stream=STREAM, task=task[4:5], start_ns=start[4:5], end_ns=end[4:5], dispatch_us=3)
    device.steps(index=1, model=0xFFFFFFFF, stream=STREAM, task=0, tag=12, at_ns=T0 + MS)

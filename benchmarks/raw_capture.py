# SPDX-License-Identifier: Apache-2.0
"""Write a raw `PROF_*` folder of any number of device tasks with the project's own writers, a step at a time.

    python -m benchmarks.raw_capture FOLDER [--tasks 200000] [--device 0]

A step holds operators on AI cores, vector cores and both, copies, AI CPU operators and collectives, with counters,
descriptions and tensors, as level 1 collects them.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepscope.formats import NONE32
from stepscope.formats.cann.write.device import MIX_AIC
from stepscope.formats.cann.write.folder import ProfWriter
from stepscope.formats.cann.write.host import HostWriter
from stepscope.formats.cann.write.other_chips import device_writer
from stepscope.formats.cann.write.settings import A2, Chip, Session
from stepscope.formats.cann.write.type_names import ACL, COMMUNICATION, LAUNCH, MASTER, NODE, SLAVE

PID, TID = 4321, 4321
T0 = 1_767_225_600_000_000_000
OPS, COLLECTIVES, PARTS = 1900, 6, 18  # of one step; PARTS small tasks make a collective
STEP_TASKS = OPS + COLLECTIVES * PARTS
STREAMS, PLANES = 3, 3
HOST_NS = 14_000  # one operator's share of the host
# Kind: GE task type, runtime task type, type in the device's records.
AIC, AIV, MIX, CPU, COPY = range(5)
GE_TYPE, RUNTIME_TYPE, SQE = np.array([0, 2, 4, 1, 0]), np.array([0, 66, 108, 1, 5]), np.array([0, 0, 0, 1, 11])
CATALOGUE = (
    ("MatMulV2", AIC, 60), ("BatchMatMulV2", AIC, 45), ("MatMulV3", AIC, 80), ("Add", AIV, 9), ("Mul", AIV, 8), ("Cast", AIV, 6),
    ("RealDiv", AIV, 8), ("LayerNormV4", AIV, 18), ("SoftmaxV2", AIV, 22), ("Gelu", AIV, 14), ("GeluGrad", AIV, 21),
    ("DropOutDoMaskV3", AIV, 11), ("ReduceSumD", AIV, 13), ("TransData", AIV, 16), ("ZerosLike", AIV, 3), ("ApplyAdamW", AIV, 35),
    ("ConcatD", AIV, 12), ("Transpose", AIV, 17), ("FlashAttentionScore", MIX, 190), ("MemcpyAsync", COPY, 7), ("Where", CPU, 55),
)  # fmt: skip
SHARE = {AIC: 5.0, AIV: 3.5, MIX: 2.0, COPY: 1.0, CPU: 0.3}
KIND, MICROSECONDS = np.array([kind for _, kind, _ in CATALOGUE]), np.array([length for *_, length in CATALOGUE])
BIG, SMALL = (
    np.array(["hcom_allReduce_", "hcom_allGather_", "hcom_reduceScatter_"]),
    np.array(["Notify_Wait", "Memcpy", "Notify_Record"]),
)


@dataclass
class Step:
    """One step's operators: what they are and when the host launches them."""

    op: np.ndarray[Any, Any]  # row of CATALOGUE
    kind: np.ndarray[Any, Any]
    begin: np.ndarray[Any, Any]
    stream: np.ndarray[Any, Any]
    length: np.ndarray[Any, Any]  # on the device


def write(parent: Path, tasks: int, *, device: int = 0, seed: int = 1, platform: int = A2) -> Path:
    """Write at least `tasks` device tasks in the records of a chip, and return the folder."""
    rng = np.random.default_rng(seed)
    session = Session(PID, T0, 82_000_000_000_000, rank=0, devices=(device,), host_mhz=100.0, cpus=64, memory_kib=1 << 28,
                      chip=Chip(platform=platform))  # fmt: skip
    weight = np.array([SHARE[kind] for kind in KIND.tolist()])
    op = rng.choice(len(CATALOGUE), OPS, p=weight / weight.sum())  # every step is alike
    with ProfWriter(parent, session) as writer:
        run = _Run(writer, device, op, rng)
        for number in range(-(-tasks // STEP_TASKS)):
            run.step(number)
        writer.close(int(run.now + 10_000_000))
    return writer.path


class _Run:
    def __init__(self, writer: ProfWriter, device: int, op: np.ndarray[Any, Any], rng: np.random.Generator) -> None:
        self.host, self.device, self.number, self.rng, self.op = HostWriter(writer), device_writer(writer, device), device, rng, op
        self.now = T0 + 100_000_000
        self.free: dict[int, int] = {}  # when a stream becomes idle
        names = np.array([name for name, *_ in CATALOGUE])
        self.calls = np.array([writer.acl_type(f"aclnn{name}") for name in names.tolist()])
        self.names = writer.ids([f"aclnn{name}_{name}AiCore_{name}" for name in names.tolist()])
        self.types = writer.ids(names)
        self.kernels = writer.ids([f"te_{name.lower()}_{at:032x}_high_performance" for at, name in enumerate(names.tolist())])
        self.big, self.small = writer.ids(BIG), writer.ids(SMALL)
        self.group, self.algorithm, self.tag = (writer.ids([text]) for text in ("hccl_world_group", "MESH-RING", "tag_0"))
        if writer.session.chip.platform == A2:
            self.host.wide_streams(tid=TID, at_ns=T0 + 1_000_000)
        self.device.frequency(at_ns=T0 + np.array([0, 50_000_000]), value=1650)

    def step(self, number: int) -> None:
        slot = np.arange(OPS)
        begin = self.now + 400_000 + HOST_NS * slot
        variant = (slot * 7 + self.op) % 5
        length = (MICROSECONDS[self.op] * (1 + 0.35 * variant) * self.rng.lognormal(0, 0.06, OPS) * 1000).astype(np.int64)
        stream = np.where(slot % 11 == 3, 42 + slot // 11 % STREAMS, 42)
        step = Step(self.op, KIND[self.op], begin, stream, length)
        self._operators(step, variant)
        self._on_device(step)
        collective = begin[-1] + 20_000 + np.arange(COLLECTIVES) * (PARTS * 2_200 + 6_000)
        self._collectives(collective)
        self.now = max(int(collective[-1]) + PARTS * 2_200 + 10_000, min(self.free.values()))  # the host never runs a step ahead
        self.host.marks(
            pid=PID, tid=TID, start_ns=int(begin[0]) - 9_000, end_ns=self.now, mark=number + 1, message=f"step {number}"
        )

    def _operators(self, step: Step, variant: np.ndarray[Any, Any]) -> None:
        begin, op = step.begin, step.op
        self.host.calls(level=ACL, type=self.calls[op], tid=TID, start_ns=begin, end_ns=begin + HOST_NS - 300)
        launched = np.flatnonzero(step.kind != COPY)
        at, names = begin[launched], self.names[op[launched]]
        self.host.calls(level=NODE, type=LAUNCH, tid=TID, start_ns=at + 5_600, end_ns=at + 13_000, item=names)
        mix = step.kind[launched] == MIX
        self.host.operators(
            tid=TID, at_ns=at + 5_900, name=names, op_type=self.types[op[launched]], task_type=GE_TYPE[step.kind[launched]],
            blocks=np.where(step.kind[launched] == AIV, 40, 20), mix_ratio=np.where(mix, 2, 0),
        )  # fmt: skip
        tensors = np.repeat(np.arange(len(launched)), 3)
        shape = np.zeros((len(tensors), 8), np.uint32)
        shape[:, 0], shape[:, 1], shape[:, 2] = 4, 512, 1024 * (1 + variant[launched][tensors])
        kind = np.tile([0, 0, 1], len(launched))
        self.host.tensors(tid=TID, at_ns=at + 5_900, name=names, op=tensors, kind=kind, format=2, dtype=27, shape=shape)
        self.host.contexts(tid=TID, at_ns=at[mix] + 5_900, name=names[mix])
        self.host.copies(tid=TID, at_ns=begin[step.kind == COPY] + 10_000, bytes=1 << 20, direction=1)

    def _on_device(self, step: Step) -> None:
        numbers = self.host.tasks(
            device=self.number, stream=step.stream, tid=TID, at_ns=step.begin + 10_000, task_type=RUNTIME_TYPE[step.kind],
            kernel=self.kernels[step.op],
        )  # fmt: skip
        start, end = self._queued(step.stream, step.begin + 16_000, step.length)
        self.device.tasks(
            stream=step.stream, task=numbers.task, batch=numbers.batch, start_ns=start, end_ns=end, sqe=SQE[step.kind],
            mix=np.where(step.kind == MIX, MIX_AIC, 0),
        )  # fmt: skip
        for kind, core, cores in ((AIC, "AIC", 20), (AIV, "AIV", 40), (MIX, "MIX_AIC", 20)):
            rows = np.flatnonzero(step.kind == kind)
            cycles = (step.length[rows] * 1.65 * 0.93).astype(np.int64) * cores
            self._counters(core, step.stream[rows], numbers.task[rows], cycles, start[rows], end[rows])
        rows = np.repeat(np.flatnonzero(step.kind == MIX), 40)
        block = np.arange(len(rows)) % 40
        cycles = (step.length[rows] * 1.65 * 0.9).astype(np.int64)
        self.device.block_counters(
            stream=step.stream[rows], task=numbers.task[rows], core="MIX_AIC", vector=1, core_id=25 + block, block=block // 2,
            sub_block=block % 2, cycles=cycles, counters=self._share(cycles), start_ns=start[rows], end_ns=end[rows],
        )  # fmt: skip
        rows = np.flatnonzero(step.kind == CPU)
        self.device.ai_cpu(
            stream=step.stream[rows], task=numbers.task[rows], start_ns=start[rows], end_ns=end[rows], dispatch_us=12
        )

    def _counters(self, core: str, stream: Any, task: Any, cycles: Any, start: Any, end: Any) -> None:
        self.device.counters(
            stream=stream, task=task, core=core, cycles=cycles, counters=self._share(cycles), start_ns=start, end_ns=end
        )

    def _share(self, cycles: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return (self.rng.uniform(0.02, 0.7, (len(cycles), 8)) * cycles[:, None]).astype(np.uint64)

    def _collectives(self, begin: np.ndarray[Any, Any]) -> None:
        which = np.arange(COLLECTIVES) % len(BIG)
        end = begin + PARTS * 2_200 + 3_000
        self.host.calls(level=NODE, type=LAUNCH, tid=TID, start_ns=begin, end_ns=end, item=self.big[which])
        self.host.operators(tid=TID, at_ns=begin + 200, name=self.big[which], op_type=self.big[which], task_type=9)
        group = np.repeat(self.group, COLLECTIVES)
        algorithm = np.repeat(self.algorithm, COLLECTIVES)
        count = (1 + which) << 20
        self.host.collectives(tid=TID, at_ns=begin + 300, data_type=3, algorithm=algorithm, count=count, group=group)
        part, of = np.tile(np.arange(PARTS), COLLECTIVES), np.repeat(np.arange(COLLECTIVES), PARTS)
        at, small, plane = begin[of] + 1_500 + part * 2_200, part % 3, part // 3 % PLANES
        types = np.where(plane == 0, MASTER, SLAVE)
        self.host.calls(level=COMMUNICATION, type=types, tid=TID, start_ns=at, end_ns=at + 1_900, item=self.small[small])
        size = np.where(small == 1, count[of] * 2 // 8, 0)
        self.host.transfers(
            tid=TID, at_ns=at + 300, name=self.small[small], group=group[of], tag=np.repeat(self.tag, len(of)), local_rank=0,
            remote_rank=1 + plane, rank_size=8, plane=plane, context=NONE32, notify=4096 + plane, stage=0, bytes=size,
            estimated_us=np.where(small == 1, size / 18e3, 1.0), data_type=4, link=1, transport=0,
        )  # fmt: skip
        stream = 60 + plane
        task_type = np.array([14, 5, 15])[small]
        numbers = self.host.tasks(device=self.number, stream=stream, tid=TID, at_ns=at + 1_200, task_type=task_type)
        length = np.where(small == 1, size // 18, np.where(small == 0, 2_500, 300))
        start, end = self._queued(stream, at + 9_000, length)
        sqe = np.array([7, 11, 6])[small]
        self.device.tasks(stream=stream, task=numbers.task, batch=numbers.batch, start_ns=start, end_ns=end, sqe=sqe)

    def _queued(self, stream: Any, ready: Any, length: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """A stream's tasks run one after the other, none before it is ready."""
        start = np.empty(len(ready), np.int64)
        for one in np.unique(stream).tolist():
            rows = np.flatnonzero(stream == one)
            busy = np.cumsum(length[rows] + 740) - (length[rows] + 740)
            begin = np.maximum(ready[rows], self.free.get(one, 0))
            start[rows] = np.maximum.accumulate(begin - busy) + busy
            self.free[one] = int(start[rows[-1]] + length[rows[-1]]) + 740
        return start, start + length


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=200_000)
    parser.add_argument("--device", type=int, default=0)
    args = parser.parse_args()
    print(write(args.folder, args.tasks, device=args.device))
    return 0


if __name__ == "__main__":
    sys.exit(main())

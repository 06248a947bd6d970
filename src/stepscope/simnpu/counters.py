# SPDX-License-Identifier: Apache-2.0
"""Hardware counters, modelled from a kernel's shapes and duration; the same kernel always gives the same counts.

A kernel of n blocks is assumed to keep n cores busy for 95 % of its measured time. The model of time divides these cycles
among the pipes (docs/simulated-npu.md): computing at the peak rate, moving data at the memory's rate. docs/formats/cann.md 4.6
defines the events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

BUSY = 0.95  # share of a task's time in which its cores run
_CUBE_FLOPS_PER_NS, _VECTOR_FLOPS_PER_NS, _BYTES_PER_NS = 100_000.0, 5_000.0, 1_000.0
_CUBE_FLOPS_PER_CYCLE = 8192
_L2_BYTES, _LINE = 192 << 20, 128
_VECTOR_SHARE = 1 / 32  # of the operations of a MIX_AIC kernel


@dataclass(frozen=True)
class Work:
    """What one kind of core does for each kernel."""

    cycles: Values  # summed over its cores
    flops: Values
    read: Values  # bytes
    written: Values
    modelled_ns: Values
    half_floats: npt.NDArray[np.bool_]
    cube: bool

    @property
    def computing(self) -> Values:
        rate = _CUBE_FLOPS_PER_NS if self.cube else _VECTOR_FLOPS_PER_NS
        return self._share(self.flops / rate)

    @property
    def reading(self) -> Values:
        return self._share(self.read / _BYTES_PER_NS)

    @property
    def writing(self) -> Values:
        return self._share(self.written / _BYTES_PER_NS)

    @property
    def cube_cycles(self) -> Values:
        """Cycles of the matrix unit at its peak; none on vector cores."""
        return self.flops / _CUBE_FLOPS_PER_CYCLE if self.cube else np.zeros(len(self.cycles))

    def _share(self, nanoseconds: Values) -> Values:
        return np.asarray(self.cycles * np.clip(nanoseconds / np.maximum(self.modelled_ns, 1.0), 0.0, 0.98), np.float64)


def work_of(kernels: npt.NDArray[Any], cycles: Values, *, cube: bool, other_half: bool = False) -> Work:
    """The work of the cores in a kernel's type, or of the vector half of MIX_AIC kernels."""
    read, flops = kernels["read"], kernels["flops"]
    if other_half:
        read, flops = kernels["written"], flops * _VECTOR_SHARE
    return Work(cycles, flops, read, kernels["written"], kernels["modelled_ns"], kernels["half_floats"], cube)


Count = Callable[[Work], Values]


def counts(work: Work, metrics: str, events: str) -> npt.NDArray[np.uint64]:
    """Counters of a set of metrics, in the order of its list of events; no event counts more often than there are cycles.

    Events of other chips that are not modelled count 0.
    """
    formulas = _OTHER_CHIPS.get((metrics, events)) or _SETS[metrics]
    numbers = [int(event, 16) for event in events.split(",") if event]
    columns = [formulas[number](work) if number in formulas else np.zeros(len(work.cycles)) for number in numbers]
    table = np.stack(columns, axis=1) if columns else np.zeros((len(work.cycles), 0))
    return np.minimum(table, work.cycles[:, None]).astype(np.uint64)


def cache_events(kernels: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """L2 cache events of kernels in the order 0xF6, 0xFB, 0xFC, 0xBF, 0x90, 0x91, 0x9C, 0x9D (docs/formats/cann.md 5)."""
    read, written = kernels["read"] / _LINE, kernels["written"] / _LINE
    hits = _hit_share(kernels["read"] + kernels["written"])
    none = np.zeros(len(kernels))
    victims = (read + written) * (1 - hits) * 0.5
    return np.stack([none, read, written, none, read * hits, written * hits, victims, none], axis=1).astype(np.uint64)


def _hit_share(touched: Values) -> Values:
    return np.asarray(0.9 * np.minimum(1.0, _L2_BYTES / np.maximum(touched, 1.0)), np.float64)


def _bits(size: int, scale: int, part: Count) -> Count:
    """Accesses that move bytes in pieces of `size * scale` bits."""
    return lambda work: part(work) * 8 / (size * scale)


def _part(share: float) -> Count:
    return lambda work: work.cycles * share


def _of_cube(part: Count) -> Count:
    return lambda work: part(work) if work.cube else np.zeros(len(work.cycles))


def _of_vector(part: Count) -> Count:
    return lambda work: np.zeros(len(work.cycles)) if work.cube else part(work)


def _read(work: Work) -> Values:
    return work.read


def _written(work: Work) -> Values:
    return work.written


def _both(work: Work) -> Values:
    return work.read + work.written


def _cube_cycles(work: Work) -> Values:
    return work.cube_cycles


def _lines(part: Count, *, hit: bool) -> Count:
    def formula(work: Work) -> Values:
        share = _hit_share(work.read + work.written)
        return part(work) / _LINE * (share if hit else 1 - share)

    return formula


def _vector_operations(half: bool, per_cycle: int) -> Count:
    return lambda work: np.where(work.half_floats == half, 0.0 if work.cube else work.flops / per_cycle, 0.0)


def _at_work(work: Work) -> Values:
    """Cycles of the pipe that computes: at least one, since even a tiny matrix runs its unit (a share of 0 means no such work)."""
    return np.maximum(work.computing, work.cycles / 1000) if work.cube else work.computing


_PIPES: Mapping[int, Count] = {
    0x416: _at_work, 0x9: _part(0.06), 0x302: lambda work: 0.6 * work.computing, 0xC: lambda work: work.reading,
    0x303: lambda work: work.writing, 0x8: lambda work: work.computing, 0xD: lambda work: work.writing, 0x54: _part(1 / 16),
    0x55: _part(1 / 800),
}  # fmt: skip
_SETS: Mapping[str, Mapping[int, Count]] = {
    "PipeUtilization": _PIPES,
    "ArithmeticUtilization": {
        0x49: _cube_cycles, 0x4B: _vector_operations(False, 64), 0x4C: _vector_operations(True, 128), 0x4F: _of_vector(_part(0.01)),
    },
    "Memory": {
        0x15: _of_vector(_bits(256, 4, _both)), 0x16: _of_vector(_bits(256, 4, _both)), 0x31: _of_cube(_bits(256, 16, _both)),
        0x32: _of_cube(_bits(128, 8, _read)), 0xF: _bits(256, 8, _read), 0x10: _bits(256, 8, _written), 0x12: _bits(8, 8, _read),
        0x13: _bits(8, 8, _written),
    },
    "MemoryL0": {
        0x1B: _cube_cycles, 0x1C: _of_cube(_bits(256, 16, _read)), 0x21: _cube_cycles, 0x22: _of_cube(_bits(256, 8, _read)),
        0x27: _of_cube(_bits(256, 8, _written)), 0x28: lambda work: work.cube_cycles / 2, 0x29: _of_cube(_bits(256, 8, _written)),
        0x2A: lambda work: work.cube_cycles / 2,
    },
    "MemoryUB": {
        0x37: _of_vector(_part(0.01)), 0x38: _of_vector(_part(0.005)), 0x43: _of_vector(_bits(128, 2, _read)),
        0x44: _of_vector(_bits(128, 2, _written)),
    },
    "ResourceConflictRatio": {
        0x64: _of_vector(lambda work: 0.005 * work.computing), 0x65: _of_vector(lambda work: 0.01 * work.computing),
        0x66: _of_vector(lambda work: 0.002 * work.computing),
    },
    "L2Cache": {
        0x500: _lines(_written, hit=True), 0x502: _lines(_written, hit=False), 0x504: _lines(_read, hit=True),
        0x506: _lines(_read, hit=False),
    },
    "MemoryAccess": {
        0x32: _of_cube(lambda work: work.read / 256), 0x20C: _of_cube(lambda work: work.written / 128),
        0x50C: lambda work: work.written / 128, 0x50D: lambda work: work.read / 128, 0x3E: _of_vector(lambda work: work.read / 128),
        0x3D: _of_vector(lambda work: work.written / 128),
    },
}  # fmt: skip
# Lists of events that other chips have for a set of metrics (docs/formats/cann.md 6.10).
_OTHER_CHIPS: Mapping[tuple[str, str], Mapping[int, Count]] = {
    ("PipeUtilization", "0x8,0xa,0x9,0xb,0xc,0xd,0x54,0x55"): {
        **_PIPES, 0x8: _of_vector(lambda work: work.computing), 0xA: _of_cube(_at_work),
        0xB: _of_cube(lambda work: 0.6 * work.computing),
    },
    ("PipeUtilization", "0x501,0x301,0x1,0x701,0x202,0x203,0x34,0x35,0x714"): {
        0x501: _of_vector(lambda work: work.computing), 0x301: _of_cube(_at_work), 0x1: _PIPES[0x9],
        0x701: _of_cube(lambda work: 0.6 * work.computing), 0x202: _PIPES[0xC], 0x203: _of_vector(_PIPES[0xD]),
        0x714: _of_cube(_PIPES[0x303]), 0x34: _PIPES[0x54], 0x35: _PIPES[0x55],
    },
    ("Memory", "0x422,0x423,0x56f,0x571,0x570,0x572,0x707,0x709"): {
        0x422: _bits(8, 8, _read), 0x423: _bits(8, 8, _written), 0x56F: _of_vector(_bits(256, 4, _both)),
        0x570: _of_vector(_bits(256, 4, _both)), 0x707: _of_cube(_bits(256, 16, _both)), 0x709: _of_cube(_bits(256, 8, _read)),
    },
}  # fmt: skip

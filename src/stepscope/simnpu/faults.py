# SPDX-License-Identifier: Apache-2.0
"""Faults of a simulated NPU, for teaching and tests: `rank=3,kind=frequency,factor=0.8` in `STEPSCOPE_SIM_FAULT`.

Several have a `;` between them. Every process reads the same text and takes what is about its own rank, before the device is
loaded.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

VARIABLE = "STEPSCOPE_SIM_FAULT"
KERNEL_TIME, LINK_TIME = "STEPSCOPE_SIM_KERNEL_TIME", "STEPSCOPE_SIM_LINK_TIME"
SLOW = "STEPSCOPE_SIM_SLOW"  # what the device itself makes longer
MODELLED = 200.0  # factor on the model's times where the user chose none: durations of this machine would hide the fault
KINDS = ("frequency", "kernel", "link", "dispatch", "allocation", "data_loading", "gc")
_NUMBERS = {"rank": int, "peer": int, "factor": float, "ms": float, "us": float, "every": int, "base": float}
_SHOWN = ("rank", "kind", "factor", "ms", "us", "every", "op", "peer")
_OPERATOR = re.compile(r"[A-Za-z_]\w{0,62}")


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a rank.

    Attributes:
        kind: one of `KINDS`.
        factor: of the clock of its cores (frequency), or of the speed of kernels of one operator (kernel) or of a link (link).
        ms: that loading a batch (data_loading), or getting memory from the device (allocation), takes longer, or that a collection
            takes after a step (gc).
        us: that the host needs longer for each task (dispatch).
        every: it hits each n-th batch or step.
        op: operator whose kernels are slow, as torch calls it (kernel).
        peer: rank at the other end (link).
        base: factor on the modelled times of healthy ranks; 0 for what the environment says.
    """

    rank: int
    kind: str
    factor: float = 0.8
    ms: float = 10.0
    us: float = 100.0
    every: int = 1
    op: str = "addmm"
    peer: int = -1
    base: float = 0.0


def parse(text: str) -> Fault:
    """A fault from its text.

    Raises:
        ValueError: it is not one, with what is wrong about it.
    """
    values: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = word.partition("=")
        if (name == "kind" and value in KINDS) or (name == "op" and _OPERATOR.fullmatch(value)):
            values[name] = value
            continue
        if not equals or name not in _NUMBERS:
            known = f"kind={'|'.join(KINDS)}" if name == "kind" else ", ".join(f"{one}=" for one in _SHOWN)
            raise ValueError(f"{word!r} in a fault is not one of {known}")
        try:
            values[name] = _NUMBERS[name](value)
        except ValueError:
            raise ValueError(f"{value!r} is not a number, in {word!r} of a fault") from None
    missing = [name for name in ("rank", "kind") if name not in values]
    if missing:
        raise ValueError(f"a fault needs {' and '.join(f'{name}=' for name in missing)}, as in rank=3,kind=frequency,factor=0.8")
    fault = Fault(**values)
    if min(fault.rank, fault.ms, fault.us) < 0 or fault.every < 1 or not 0 < fault.factor <= 1:
        raise ValueError(
            "of a fault, rank, ms and us are not negative, every is at least 1, and factor is a share of the speed: up to 1"
        )
    if fault.kind == "link" and (fault.peer < 0 or fault.peer == fault.rank):
        raise ValueError("a slow link needs the rank at its other end, as in rank=1,kind=link,peer=2,factor=0.25")
    return fault


def for_children(texts: tuple[str, ...], environment: MutableMapping[str, str]) -> None:
    """Give the faults to the processes of a job. Their kernels take modelled times, also on healthy ranks."""
    base = _number(environment.get(KERNEL_TIME)) or MODELLED
    environment[KERNEL_TIME] = f"{base:g}"
    environment[VARIABLE] = ";".join(f"{text},base={base:g}" for text in texts)


def everyones(environment: MutableMapping[str, str] = os.environ) -> list[Fault]:
    """The faults of all processes."""
    return [parse(text) for text in filter(None, environment.get(VARIABLE, "").split(";"))]


def own(environment: MutableMapping[str, str] = os.environ) -> list[Fault]:
    """The faults of this process."""
    rank = int(_number(environment.get("RANK")) or 0)
    return [fault for fault in everyones(environment) if fault.rank == rank]


def clock_share(environment: MutableMapping[str, str] = os.environ) -> float:
    """How fast the cores of this process run: 1 without a fault."""
    share = 1.0
    for fault in own(environment):
        share *= fault.factor if fault.kind == "frequency" else 1.0
    return share


def apply(environment: MutableMapping[str, str] = os.environ) -> None:
    """Make this process as slow as its faults say; after torch is imported, before the device is loaded."""
    if not environment.get(VARIABLE):
        return
    faults = own(environment)
    share = clock_share(environment)
    if share < 1:
        base = (
            next(fault.base for fault in faults if fault.kind == "frequency") or _number(environment.get(KERNEL_TIME)) or MODELLED
        )
        environment[KERNEL_TIME] = f"{base / share:g}"
        environment[LINK_TIME] = f"{base:g}"  # links do not slow down with the cores
    # All members of a group are as slow as its slowest link.
    words = [f"link={one.rank}-{one.peer}:{1 / one.factor:g}" for one in everyones(environment) if one.kind == "link"]
    for fault in faults:
        if fault.kind == "data_loading":
            _slow_loading(fault)
        elif fault.kind == "gc":
            _collections(fault)
        elif fault.kind == "kernel":
            words.append(f"kernel={fault.op}:{1 / fault.factor:g}")
        elif fault.kind == "dispatch":
            words.append(f"launch_us={fault.us:g}")
        elif fault.kind == "allocation":
            words.append(f"malloc_ms={fault.ms:g}")
            _emptied_caches(fault)
    if words:
        environment[SLOW] = " ".join(words)


def _slow_loading(fault: Fault) -> None:
    from torch.utils.data import dataloader

    for iterator in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter):
        iterator._next_data = _delayed(iterator._next_data, fault)


def _delayed(function: Any, fault: Fault) -> Any:
    count = 0

    def slower(self: Any) -> Any:
        nonlocal count
        count += 1
        if count % fault.every == 0:
            time.sleep(fault.ms / 1000)
        return function(self)

    return slower


def _collections(fault: Fault) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    ours, count = False, 0

    def lasting(phase: str, _: dict[str, int]) -> None:
        if ours and phase == "stop":
            time.sleep(fault.ms / 1000)

    def collect(*_: Any) -> None:
        nonlocal ours, count
        count += 1
        if count % fault.every:
            return
        ours = True
        try:
            gc.collect(0)  # all of them take as long as the process is large
        finally:
            ours = False

    gc.callbacks.append(lasting)
    register_optimizer_step_post_hook(collect)


def _emptied_caches(fault: Fault) -> None:
    """Memory goes back to the device after a step and is asked for again, as where it is cut up too much to be used again."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    count = 0

    def empty(*_: Any) -> None:
        nonlocal count
        count += 1
        if count % fault.every == 0:
            import torch

            torch.npu.empty_cache()

    register_optimizer_step_post_hook(empty)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None

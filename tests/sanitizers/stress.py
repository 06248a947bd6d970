# SPDX-License-Identifier: Apache-2.0
"""Many threads against the native libraries, for a sanitizer to watch: `stress.py observer` or `stress.py simnpu`.

The tests themselves read what was recorded with polars, which cannot be loaded beside ThreadSanitizer; here the figures of the
libraries have to do.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import torch

SESSIONS = 12
THREADS = 4
ROUNDS = 60


def in_threads(work: Callable[[int], None], count: int = THREADS) -> None:
    """Run `work` in several threads at once; the first fault of any of them rises here."""
    faults: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as fault:  # noqa: BLE001 - raised again below
            faults.append(fault)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def observer() -> None:
    """Sessions begin and end while threads that compute come, stay and go."""
    from stepscope.collect.tiers.observer import ObserverOptions, load_observer

    found = load_observer()
    if isinstance(found, str):
        sys.exit(found)
    switches = ("record_shapes", "profile_memory", "with_stack", "with_modules", "with_flops")
    over = threading.Event()

    def compute() -> None:
        weights = torch.rand(8, 8, requires_grad=True)
        for number in itertools.count():
            with torch.profiler.record_function(f"round {number % 5}"):
                (torch.rand(4, 8) @ weights).relu().sum().backward()
            if over.is_set():
                return

    stay = [threading.Thread(target=compute) for _ in range(THREADS)]
    for thread in stay:
        thread.start()
    try:
        for session in range(SESSIONS):
            chosen = {switch: bool(session >> place & 1) for place, switch in enumerate(switches)}
            with tempfile.TemporaryDirectory() as folder:
                found.prepare(Path(folder), ObserverOptions(all_threads=True, **chosen))
                found.start()
                found.mark_step(session)
                number = found.range_start("range")

                def come_and_go(_: int) -> None:
                    for _ in range(ROUNDS):
                        found.push_range("inner")
                        torch.ones(4).add(1)
                        found.mark(0, 7, "mark")
                        found.pop_range()

                in_threads(come_and_go)
                found.range_end(number)
                report = found.stop()
                least = THREADS * ROUNDS
                if report.operators < least and not report.dropped:
                    sys.exit(f"session {session}: {report.operators} operators of at least {least}")
                print(f"session {session}: {report.operators} operators, {report.dropped} dropped", flush=True)
    finally:
        over.set()
        for thread in stay:
            thread.join()


def simnpu() -> None:
    """Threads with streams of their own on both devices: kernels, events, copies, memory that changes hands, backward passes."""
    from stepscope import simnpu as device

    device.load()
    shared = torch.npu.Stream()

    def work(number: int) -> None:
        torch.npu.set_device(number % 2)
        own, event = torch.npu.Stream(), torch.npu.Event()
        weights = torch.ones(8, 8, device="npu", requires_grad=True)
        total = torch.zeros((), device="npu")
        for round_ in range(ROUNDS):
            with torch.npu.stream(own):
                own.wait_stream(torch.npu.default_stream())
                x = torch.full((4, 8), 1.0, device="npu")
                total += x.sum()
                event.record()
            event.wait()
            (x @ weights).sum().backward()
            if number % 2 == 0:
                with torch.npu.stream(shared):
                    event.wait()
                    y = x * 2
                    x.record_stream(shared)
                torch.npu.current_stream().wait_stream(shared)
                y.record_stream(torch.npu.current_stream())
                del y
            if round_ % 10 == 0:
                x.to("cpu", non_blocking=True)
                torch.npu.memory_stats()
            if round_ % 20 == 0:
                torch.npu.empty_cache()
            del x
        torch.npu.synchronize()
        if total.item() != 32 * ROUNDS:
            sys.exit(f"thread {number}: {total.item()} instead of {32 * ROUNDS}")
        assert weights.grad is not None
        if weights.grad.cpu()[0, 0].item() != 4 * ROUNDS:
            sys.exit(f"thread {number}: wrong gradients")

    in_threads(work)
    print("simulated NPU: sums and gradients are right")


if __name__ == "__main__":
    {"observer": observer, "simnpu": simnpu}[sys.argv[1]]()

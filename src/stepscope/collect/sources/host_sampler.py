# SPDX-License-Identifier: Apache-2.0
"""Load of the host while a capture runs: processor, memory and disk of this process, network of the machine.

One thread, ten samples a second, read from /proc; about 0.1 ms of work each.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from stepscope.collect import messages, paths
from stepscope.collect.clocks import raw_ns

FILE = "x.host_counters.csv"
HEADER = "raw_ns,source,name,series,value\n"
INTERVAL_SECONDS = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

Samples = list[tuple[str, str, str, float]]  # source, name, series, value


class HostSampler:
    """Samples the systems named in `systems` (cpu, mem, disk, network) until stopped."""

    def __init__(self, framework: Path, systems: tuple[str, ...]):
        self._file = framework / FILE
        self._probes = [_PROBES[name]() for name in systems if name in _PROBES]
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        _warn_unsupported(systems)

    def start(self) -> None:
        if not self._probes:
            return
        with os.fdopen(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, paths.FILE_MODE), "w") as file:
            file.write(HEADER)
        self._sample()
        self._thread = threading.Thread(target=self._run, name="stepscope-host-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._sample()

    def _run(self) -> None:
        while not self._end.wait(INTERVAL_SECONDS):
            try:
                self._sample()
            except OSError:
                return  # the disk is full or the folder is gone: the capture ends by other means

    def _sample(self) -> None:
        now = raw_ns()
        lines = [
            f"{now},{source},{name},{series},{value:.3f}\n" for probe in self._probes for source, name, series, value in probe(now)
        ]
        with self._file.open("a") as file:
            file.write("".join(lines))


class _Rate:
    """Growth of a number per second; None for the first sample."""

    def __init__(self) -> None:
        self._before: tuple[int, float] | None = None

    def __call__(self, now_ns: int, value: float) -> float | None:
        before, self._before = self._before, (now_ns, value)
        if before is None or now_ns <= before[0]:
            return None
        return (value - before[1]) / (now_ns - before[0]) * 1e9


class _Cpu:
    """Share of each processor that the threads of this process took, and the mean of all processors as `CPU Avg`.

    A thread's time counts for the processor on which it was seen last, as the operating system reports no more.
    """

    def __init__(self, tasks: Path = Path("/proc/self/task")) -> None:
        self._tasks = tasks
        self._processors = os.cpu_count() or 1
        self._before: tuple[int, dict[str, int]] | None = None

    def __call__(self, now_ns: int) -> Samples:
        seen = dict(self._threads())
        before, self._before = self._before, (now_ns, {tid: ticks for tid, (ticks, _) in seen.items()})
        if before is None or now_ns <= before[0]:
            return []
        used = dict.fromkeys(range(self._processors), 0)
        for tid, (ticks, processor) in seen.items():
            used[processor] = used.get(processor, 0) + ticks - before[1].get(tid, 0)
        percent = 100 / _TICKS / ((now_ns - before[0]) / 1e9)
        # Ticks are coarse, and a thread may have moved: no processor gives more than all of its time.
        shares = [("CPU Usage", f"CPU {number}", "Usage(%)", min(100.0, ticks * percent)) for number, ticks in sorted(used.items())]
        mean = min(100.0, sum(used.values()) * percent / self._processors)
        return [*shares, ("CPU Usage", "CPU Avg", "Usage(%)", mean)]

    def _threads(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for tid in os.listdir(self._tasks):
            try:
                fields = _after_name((self._tasks / tid / "stat").read_text())
            except OSError:
                continue  # it has just ended
            yield tid, (int(fields[11]) + int(fields[12]), int(fields[36]))


class _Memory:
    def __call__(self, now_ns: int) -> Samples:
        del now_ns
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
        total = os.sysconf("SC_PHYS_PAGES") * _PAGE
        return [("Memory Usage", "Memory Usage", "Usage(%)", 100 * resident / total)]


class _Disk:
    def __init__(self) -> None:
        self._read, self._written = _Rate(), _Rate()

    def __call__(self, now_ns: int) -> Samples:
        numbers = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        rates = {
            "Read(KB/s)": self._read(now_ns, int(numbers["read_bytes"])),
            "Write(KB/s)": self._written(now_ns, int(numbers["write_bytes"])),
        }
        return [("Disk Usage", "Disk Usage", series, rate / 1024) for series, rate in rates.items() if rate is not None]


class _Network:
    """Bytes in and out of all interfaces but the loopback; and the share of the links' speed where it is known."""

    def __init__(self) -> None:
        self._rate = _Rate()
        self._links = [link for link in Path("/sys/class/net").iterdir() if link.name != "lo"]

    def __call__(self, now_ns: int) -> Samples:
        total = sum(_number(link / "statistics" / name) for link in self._links for name in ("rx_bytes", "tx_bytes"))
        rate = self._rate(now_ns, total)
        if rate is None:
            return []
        samples: Samples = [("Network Usage", "Network Usage", "Speed(KB/s)", rate / 1024)]
        limit = sum(max(0, _number(link / "speed")) for link in self._links) * 125_000  # Mbit/s
        if limit:
            samples.append(("Network Usage", "Network Usage", "Usage(%)", 100 * rate / limit))
        return samples


_PROBES: dict[str, Callable[[], Callable[[int], Samples]]] = {"cpu": _Cpu, "mem": _Memory, "disk": _Disk, "network": _Network}


def _after_name(stat: str) -> list[str]:
    """Fields of /proc/self/stat from the state on; the name before them may hold anything."""
    return stat[stat.rindex(")") + 2 :].split()


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0  # an interface that is down has no speed


def _warn_unsupported(systems: tuple[str, ...]) -> None:
    if "numa" in systems:
        messages.once(messages.warning, "host_sys=numa is left out: not supported")

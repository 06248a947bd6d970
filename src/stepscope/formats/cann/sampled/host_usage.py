# SPDX-License-Identifier: Apache-2.0
"""What the host's sampler took from /proc and iotop: processors, memory, disk, network.

Stamps are nanoseconds of the host's monotonic clock. A value belongs to the time since the previous sample, so the vendor's
tool shows it at the stamp of that sample (docs/formats/cann.md 5.4; no real file was seen).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.sampled.series import SECOND, SampledRows, counters, integer, number, series
from stepscope.tables import issues, lost

_PAGE_KB = 4
_MEGABIT = 1e6 / 8  # bytes
_DECIMALS = 6
# Distance of the fields of /proc/<pid>/task/<tid>/stat behind the name in brackets, which may hold blanks.
_USER_TIME, _SYSTEM_TIME, _PROCESSOR = 11, 12, 36
_TO_KB = {"B/s": 1 / 1024, "K/s": 1.0, "M/s": 1024.0, "G/s": 1024.0**2}

Thread = tuple[int, int]  # time used, processor it was seen on


def host_cpu(part: Part, lines: Sequence[str]) -> SampledRows:
    """Share of each processor that the threads of this process used, and the mean of all processors."""
    clock_hz, processors = _info(part, "sysClockFreq"), _info(part, "cpuNums")
    rows: list[tuple[int, str, float]] = []
    bad = [0]
    last: tuple[int, float, dict[int, Thread]] | None = None
    for stamp, block in _blocks(lines):
        uptime = number((block[0].split() or [""])[0]) if block else None
        if uptime is None or not clock_hz:
            bad[0] += 1 + len(block)
            continue
        now = (stamp, uptime * clock_hz, _threads(block[1:], bad))
        if last is not None and now[1] > last[1]:
            rows += _processor_shares(last, now, processors)
        last = now
    frame = _frame(part, [(stamp, share) for stamp, _, share in rows]).with_columns(
        pl.Series("cpu", [cpu for _, cpu, _ in rows], pl.String)
    )
    return counters(
        [series(frame, part, "CPU Usage", pl.format("CPU {}", "cpu"), "Usage(%)", "value")],
        lost(issues.UNREADABLE_LINE, "host_cpu.data", bad[0]),
    )


def _threads(block: Sequence[str], bad: list[int]) -> dict[int, Thread]:
    found: dict[int, Thread] = {}
    for line in block:
        head, _, tail = line.rpartition(")")
        fields = tail.split()
        numbers = [integer(fields[at]) if at < len(fields) else None for at in (_USER_TIME, _SYSTEM_TIME, _PROCESSOR)]
        tid = integer((head.split() or [""])[0])
        user, system, processor = numbers
        if tid is None or user is None or system is None or processor is None:
            bad[0] += bool(line.strip())
        else:
            found[tid] = (user + system, processor)
    return found


def _processor_shares(
    last: tuple[int, float, dict[int, Thread]], now: tuple[int, float, dict[int, Thread]], processors: float
) -> Iterator[tuple[int, str, float]]:
    passed = now[1] - last[1]
    used: dict[int, float] = {}
    for tid, (time, processor) in now[2].items():
        if tid in last[2]:
            used[processor] = used.get(processor, 0.0) + min(time - last[2][tid][0], passed)
    for processor, spent in used.items():
        share = round(spent * 100 / passed, _DECIMALS)
        if share <= 100:  # more comes from threads that changed their processor
            yield last[0], str(processor), share
    yield last[0], "Avg", round(sum(used.values()) * 100 / (passed * processors), _DECIMALS) if processors else 0.0


def host_mem(part: Part, lines: Sequence[str]) -> SampledRows:
    """Share of the host's memory that this process holds: lines of a stamp and /proc/<pid>/statm."""
    total_kb = _info(part, "memoryTotal")
    samples: list[tuple[int, float]] = []
    bad = 0
    last: int | None = None
    for line in lines:
        fields = line.split()
        stamp, pages = (integer(fields[0]), integer(fields[2])) if len(fields) > 2 else (None, None)
        if stamp is None or pages is None or not total_kb:
            bad += bool(fields)
            continue
        if last is not None:
            samples.append((last, round(pages * _PAGE_KB * 100 / total_kb, _DECIMALS)))
        last = stamp
    frame = _frame(part, samples)
    return counters(
        [series(frame, part, "Memory Usage", "Memory Usage", "Usage(%)", "value")],
        lost(issues.UNREADABLE_LINE, "host_mem.data", bad),
    )


def host_disk(part: Part, lines: Sequence[str]) -> SampledRows:
    """Lines of iotop at a fixed interval after `start_time <ns>`."""
    frequency = number(part.setting("host_disk_freq"))
    start, rows, bad = 0, [], 0
    for line in lines:
        fields = line.split()
        if len(fields) < 2 or integer(fields[1]) is None:
            continue  # heads and sums
        if fields[0] == "start_time":
            start = integer(fields[1]) or 0
            continue
        read, write = (_kb(fields, 4), _kb(fields, 6))
        if read is None or write is None:
            bad += 1
            continue
        waited = number(fields[10]) if len(fields) > 10 and "unavailable" not in line else 0.0
        rows.append((read, write, waited or 0.0))
    if not frequency or frequency <= 0:
        return counters((), lost(issues.UNREADABLE_LINE, "host_disk.data", len(rows) + bad, "the settings have no host_disk_freq"))
    interval = SECOND / frequency
    frame = _frame(part, [(int(start + at * interval), usage) for at, (_, _, usage) in enumerate(rows)]).with_columns(
        pl.Series("read", [read for read, _, _ in rows], pl.Float64),
        pl.Series("write", [write for _, write, _ in rows], pl.Float64),
    )
    shown = {"Usage(%)": "value", "Read(KB/s)": "read", "Write(KB/s)": "write"}
    return counters(
        [series(frame, part, "Disk Usage", "Disk Usage", label, column) for label, column in shown.items()],
        lost(issues.UNREADABLE_LINE, "host_disk.data", bad),
    )


def _kb(fields: Sequence[str], at: int) -> float | None:
    amount = number(fields[at]) if len(fields) > at + 1 else None
    return None if amount is None else amount * _TO_KB.get(fields[at + 1], 1.0)


def host_network(part: Part, lines: Sequence[str]) -> SampledRows:
    """Growth of the byte totals in /proc/net/dev, of the cards whose speed the settings give."""
    cards = part.info.get("netCard")
    speeds = {
        str(card.get("netCardName")): float(card["speed"]) * _MEGABIT
        for card in (cards if isinstance(cards, list) else ())
        if isinstance(card, dict) and isinstance(card.get("speed"), int | float) and card["speed"] > 0
    }
    rows: list[tuple[int, float, float]] = []
    last: tuple[int, dict[str, tuple[int, int]]] | None = None
    for stamp, block in _blocks(lines):
        totals = {card: totals for card, totals in map(_card_totals, block) if totals is not None and card in speeds}
        if last is not None and stamp > last[0]:
            growths = {card: _growth(last[1].get(card), now) for card, now in totals.items()}
            measured = {card: growth for card, growth in growths.items() if growth is not None}
            if measured:
                seconds = (stamp - last[0]) / SECOND
                mean = sum(measured.values()) / len(measured) / seconds
                card = next(reversed(totals))
                rows.append((last[0], round(mean * 100 / speeds[card], _DECIMALS), sum(measured.values()) / seconds / 1024))
        last = (stamp, totals)
    frame = _frame(part, [(stamp, usage) for stamp, usage, _ in rows]).with_columns(
        pl.Series("speed", [speed for _, _, speed in rows], pl.Float64)
    )
    return counters(
        [
            series(frame, part, "Network Usage", "Network Usage", "Usage(%)", "value"),
            series(frame, part, "Network Usage", "Network Usage", "Speed(KB/s)", "speed"),
        ],
        lost(
            issues.UNREADABLE_LINE, "host_network.data", 0 if speeds else len(lines), "info.json names no network card with a speed"
        ),
    )


def _card_totals(line: str) -> tuple[str, tuple[int, int] | None]:
    card, _, tail = line.partition(":")
    fields = tail.split()
    received, sent = (integer(fields[0]), integer(fields[8])) if len(fields) > 10 else (None, None)
    return card.strip(), None if received is None or sent is None else (received, sent)


def _growth(before: tuple[int, int] | None, now: tuple[int, int]) -> int | None:
    if before is None or now[0] < before[0] or now[1] < before[1]:
        return None
    return now[0] - before[0] + now[1] - before[1]


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Samples that begin with `time <ns>`: the stamp and the lines behind it."""
    stamp: int | None = None
    block: list[str] = []
    for line in lines:
        if line.startswith("time"):
            if stamp is not None:
                yield stamp, block
            stamp, block = integer([*line.split(), ""][1]), []
        elif line.strip():
            block.append(line)
    if stamp is not None:
        yield stamp, block


def _frame(part: Part, samples: Sequence[tuple[int, float]]) -> pl.DataFrame:
    """Values with their epoch times."""
    zero = part.clock.epoch_offset_ns
    rows = [(stamp + zero, value) for stamp, value in samples]
    return pl.DataFrame(rows, schema={"time_ns": pl.Int64(), "value": pl.Float64()}, orient="row")


def _info(part: Part, name: str) -> float:
    """A number of info.json; 0 when it is missing or not a number."""
    return number(str(part.info.get(name, ""))) or 0.0

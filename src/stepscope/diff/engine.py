# SPDX-License-Identifier: Apache-2.0
"""Divide the change of the mean step into rows that sum to it exactly, and say which of them are more than noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import polars as pl

from stepscope.analysis.partition.spans import Ints
from stepscope.diff import noise
from stepscope.diff.align import Pair, align
from stepscope.diff.comparability import Workload, compare, workload
from stepscope.diff.ledger import Ledger, ledger
from stepscope.diff.noise import CANNOT_TELL, CHANGED, WITHIN_NOISE, Floats, Noise
from stepscope.diff.result import Diff, DiffError, Row
from stepscope.tables import Tables

RUNS = 3  # runs a side from which a run is a sample; with fewer it is a step
# Rows below this share of the limit for changes are never tested, nor ordered by how sure they are.
SMALL = 0.1
QUEUED = "idle.queued"


@dataclass(frozen=True)
class Recording:
    """What a diff needs of one capture; its tables can be let go."""

    ledger: Ledger
    workload: Workload


def record(tables: Tables) -> Recording:
    entered = ledger(tables)
    return Recording(entered, workload(tables, entered.count))


class Side:
    """All captures of one side."""

    def __init__(self, recordings: Sequence[Recording]):
        self.recordings = recordings
        self.ledgers = [one.ledger for one in recordings]

    @cached_property
    def keys(self) -> pl.DataFrame:
        return pl.concat([one.keys for one in self.ledgers])

    @cached_property
    def cells(self) -> pl.DataFrame:
        """Of all captures: window (numbered through), key (row of `keys`), ns, calls."""
        found, windows, keys = [], 0, 0
        for one in self.ledgers:
            found.append(one.cells.with_columns(pl.col("window") + windows, pl.col("key") + keys))
            windows += one.count
            keys += one.keys.height
        return pl.concat(found)

    @cached_property
    def totals(self) -> Ints:
        return np.concatenate([one.totals for one in self.ledgers])

    @property
    def count(self) -> int:
        """Number of steps."""
        return int(self.totals.size)

    @property
    def mean_ns(self) -> Fraction:
        return Fraction(int(self.totals.sum()), self.count)

    @cached_property
    def runs(self) -> tuple[int, ...]:
        """Run of each capture: captures of different ranks belong to one run, the same rank again is the next one."""
        seen: dict[int, int] = {}
        found = []
        for number, one in enumerate(self.recordings):
            rank = one.workload.rank if one.workload.rank is not None else -1
            found.append(seen.get(rank, 0) if rank >= 0 else number)
            seen[rank] = seen.get(rank, 0) + 1
        return tuple(found)

    @property
    def run_count(self) -> int:
        return len(set(self.runs))

    def samples(self, *, by_run: bool) -> Ints:
        """Sample of each window: its run, or its step in that run; ranks of a step are one sample."""
        named: dict[tuple[int, int | None, int], int] = {}
        found = []
        for run, one in zip(self.runs, self.ledgers, strict=True):
            for place, step in enumerate(one.steps):
                key = (run, None, 0) if by_run else (run, step, place if step is None else 0)
                found.append(named.setdefault(key, len(named)))
        return np.array(found, dtype=np.int64)

    def part_samples(self, parts: Sequence[str], *, by_run: bool) -> Floats:
        """Mean ns of each sample in some parts together."""
        chosen = self.keys["part"].is_in(list(parts)).to_numpy()
        return _matrix(self, np.where(chosen, 0, -1), 1, by_run=by_run)[:, 0]


def diff(base: Iterable[Tables], new: Iterable[Tables], *, by: str = "kernel") -> Diff:
    """The difference between the captures of two sides, from their linked tables."""
    return compare_sides(Side([record(one) for one in base]), Side([record(one) for one in new]), by=by)


def compare_sides(base: Side, new: Side, *, by: str = "kernel") -> Diff:
    by_run = min(base.run_count, new.run_count) >= RUNS
    checks = compare([one.workload for one in base.recordings], [one.workload for one in new.recordings])
    simulated = any(one.workload.simulated for one in (*base.recordings, *new.recordings))
    whole = _whole(base, new, by_run=by_run, simulated=simulated)
    levels = {name: _rows(base, new, name, by_run=by_run, simulated=simulated) for name in dict.fromkeys(("part", by))}
    return Diff(
        by=by,
        base_ns=base.mean_ns,
        new_ns=new.mean_ns,
        noise=whole,
        rows=levels[by],
        parts=levels["part"],
        checks=tuple(checks),
        steps=(base.count, new.count),
        runs=(base.run_count, new.run_count),
        samples="runs" if by_run else "steps",
        marked=all(one.workload.marked for one in (*base.recordings, *new.recordings)),
        warm_up=(sum(one.warm_up for one in base.ledgers), sum(one.warm_up for one in new.ledgers)),
        simulated=simulated,
        peak_bytes=(_peaks(base), _peaks(new)),
        sides=(base, new),
    )


def _peaks(side: Side) -> tuple[float, ...]:
    """Peak memory of each capture that recorded it."""
    return tuple(one.workload.peak_bytes for one in side.recordings if one.workload.peak_bytes is not None)


def _matrix(side: Side, row_of: Ints, columns: int, *, by_run: bool) -> Floats:
    """Mean ns of each sample (rows) in each row of the diff (columns); -1 in `row_of` leaves a key out."""
    sample = side.samples(by_run=by_run)
    count = int(sample.max()) + 1
    found = np.zeros((count, columns))
    row = row_of[side.cells["key"].to_numpy()]
    kept = row >= 0
    np.add.at(found, (sample[side.cells["window"].to_numpy()[kept]], row[kept]), side.cells["ns"].to_numpy()[kept])
    return found / np.bincount(sample, minlength=count)[:, None]


def _whole(base: Side, new: Side, *, by_run: bool, simulated: bool) -> Noise:
    floor = noise.FLOOR * float(base.mean_ns)

    def judged(*left_out: str) -> Noise:
        columns = [np.where(side.keys["part"].is_in(left_out).to_numpy(), -1, 0) for side in (base, new)]
        matrices = [_matrix(side, column, 1, by_run=by_run) for side, column in zip((base, new), columns, strict=True)]
        return noise.judge(matrices[0], matrices[1], floor)[0]

    found = judged()
    if simulated and found.status == CHANGED:
        # As with rows: a step that only waits longer for this machine's processors has not changed.
        found = replace(found, status=judged(QUEUED).status)
    return found


def _rows(base: Side, new: Side, by: str, *, by_run: bool, simulated: bool) -> tuple[Row, ...]:
    pairs = align(base.keys, new.keys, by, (base.ledgers[0].sequence, new.ledgers[0].sequence))
    row_of = [_row_of(base, [pair.base_rows for pair in pairs]), _row_of(new, [pair.new_rows for pair in pairs])]
    (base_ns, base_calls), (new_ns, new_calls) = (_sums(side, row_of[place], len(pairs)) for place, side in enumerate((base, new)))
    timed = np.flatnonzero(base_ns + new_ns > 0)
    floor = noise.FLOOR * float(base.mean_ns)
    means = np.maximum(base_ns / base.count, new_ns / new.count)
    chosen = timed[means[timed] >= SMALL * floor]
    column = np.full(len(pairs), -1, dtype=np.int64)
    column[chosen] = np.arange(chosen.size)
    matrices = [_matrix(side, column[row_of[place]], chosen.size, by_run=by_run) for place, side in enumerate((base, new))]
    # Rows that are small on both sides cannot change much: they are not among the tested ones.
    tested = np.flatnonzero(means[chosen] >= floor)
    judged = dict(zip(chosen[tested].tolist(), noise.judge(matrices[0][:, tested], matrices[1][:, tested], floor), strict=True))
    few = min(matrix.shape[0] for matrix in matrices) < noise.LEAST
    sure = dict(zip(chosen.tolist(), _sure(*matrices).tolist(), strict=True))
    rows = []
    for place in timed.tolist():
        found = judged.get(place, Noise(CANNOT_TELL if few else WITHIN_NOISE))
        if simulated and pairs[place].name(0) == QUEUED and found.status == CHANGED:
            # Work that a simulated device has not begun waits for this machine's processors, not for the program.
            found = replace(found, status=WITHIN_NOISE)
        sums = (int(base_ns[place]), int(base_calls[place])), (int(new_ns[place]), int(new_calls[place]))
        rows.append(_row(pairs[place], sums, (base.count, new.count), found))
    total = sum((row.delta_ns for row in rows), Fraction(0))
    if total != new.mean_ns - base.mean_ns:
        raise DiffError(f"rows sum to {total}, the mean step changed by {new.mean_ns - base.mean_ns}")
    return _ordered(rows, [sure.get(place, 0.0) for place in timed.tolist()])


def _row_of(side: Side, rows: Sequence[tuple[int, ...]]) -> Ints:
    """Row of the diff that each key of a side belongs to."""
    found = np.full(side.keys.height, -1, dtype=np.int64)
    for number, keys in enumerate(rows):
        found[list(keys)] = number
    return found


def _sums(side: Side, row_of: Ints, count: int) -> tuple[Ints, Ints]:
    """Time and calls of each row over all steps."""
    row = row_of[side.cells["key"].to_numpy()]
    ns, calls = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    np.add.at(ns, row, side.cells["ns"].to_numpy())
    np.add.at(calls, row, side.cells["calls"].to_numpy())
    return ns, calls


def _row(pair: Pair, sums: tuple[tuple[int, int], tuple[int, int]], steps: tuple[int, int], tested: Noise) -> Row:
    (base_ns, base_calls), (new_ns, new_calls) = sums
    means = Fraction(base_ns, steps[0]), Fraction(new_ns, steps[1])
    calls = Fraction(base_calls, steps[0]), Fraction(new_calls, steps[1])
    delta = means[1] - means[0]
    if base_calls and new_calls:
        of_calls = (calls[1] - calls[0]) * Fraction(base_ns, base_calls)
    else:
        # New and gone rows are calls; a row that no call began in these steps (it reaches in from before) is price.
        of_calls = delta if base_calls or new_calls else Fraction(0)
    old = tuple(pair.name(place, side="base") for place in range(4))
    now = tuple(pair.name(place) for place in range(4))
    return Row(
        part=now[0], module=now[1], op=now[2], kernel=now[3],
        base_op=old[2], base_kernel=old[3], match=pair.match,
        base_ns=means[0], new_ns=means[1], base_calls=calls[0], new_calls=calls[1],
        calls_ns=of_calls, price_ns=delta - of_calls, noise=tested,
    )  # fmt: skip


def _sure(base: Floats, new: Floats) -> Floats:
    """How much of each column's change is beyond twice its standard error; all of it where nothing is known of the error."""
    delta: Floats = np.abs(new.mean(axis=0) - base.mean(axis=0))
    if min(base.shape[0], new.shape[0]) < noise.LEAST:
        return delta
    error = np.sqrt(base.var(axis=0, ddof=1) / base.shape[0] + new.var(axis=0, ddof=1) / new.shape[0])
    surely: Floats = np.maximum(delta - 2 * error, 0.0)
    return surely


def _ordered(rows: list[Row], sure: list[float]) -> tuple[Row, ...]:
    """Changes first, largest first; then what is surest to differ.

    A device that works longer idles less: an idle row counts for what of it the opposite change of work does not explain.
    """
    work = float(sum((row.delta_ns for row in rows if not row.part.startswith("idle.")), Fraction(0)))

    def own(row: Row) -> float:
        size = abs(float(row.delta_ns))
        opposite = row.part.startswith("idle.") and float(row.delta_ns) * work < 0
        return max(size - abs(work), 0.0) if opposite else size

    def weight(number: int) -> tuple[bool, float, float, float, str, str, str, str]:
        row = rows[number]
        size = own(row)
        surely = min(sure[number], size)
        return (row.status != CHANGED, -size if row.real else -surely, -size, -abs(float(row.delta_ns)), *row.key)

    return tuple(rows[number] for number in sorted(range(len(rows)), key=weight))

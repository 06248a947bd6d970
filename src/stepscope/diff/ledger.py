# SPDX-License-Identifier: Apache-2.0
"""The time of one capture as a ledger: for every step and key (part, module, operator, kernel) its nanoseconds and calls.

Entries of a window sum exactly to its length, because they come from the partition and from exclusive time. Idle time is one key
per part. Without a device, time in operators is divided by operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.analysis.link import op_tree
from stepscope.analysis.partition import DeviceModel, Partition, device_model, exclusive_time, partition
from stepscope.analysis.partition.layers import USER_RANGE
from stepscope.analysis.partition.names import matches
from stepscope.analysis.partition.parts import BUSY
from stepscope.analysis.partition.spans import Ints, Spans, minus, spans_of
from stepscope.analysis.steps import is_step
from stepscope.analysis.views import module_paths
from stepscope.tables import Tables

KEY = ("part", "module", "op", "kernel")
CELLS = {"window": pl.Int64, "key": pl.Int64, "ns": pl.Int64, "calls": pl.Int64}
# The first steps of a recording compile and fill caches; they are left out when every later step is shorter by this factor.
WARM_UP = 1.5
DISPATCHED = r"^\w+::\w+(\.\w+)?$"  # an operator of the framework: namespace and name


@dataclass(frozen=True)
class Ledger:
    """One capture.

    Attributes:
        keys: one row per key, columns of `KEY`, empty text where a key has none.
        cells: window, key (row of `keys`), ns, calls; keys without time in a window have no row.
        totals: length of each window in ns.
        steps: number of the step of each window; None when the capture marks none.
        sequence: operators of the window of median length in the order of issue: part, module, op.
        warm_up: how many windows at the begin were left out.
    """

    keys: pl.DataFrame
    cells: pl.DataFrame
    totals: Ints
    steps: tuple[int | None, ...]
    sequence: pl.DataFrame
    warm_up: int = 0

    @property
    def count(self) -> int:
        return int(self.totals.size)


class LedgerError(AssertionError):
    """Entries do not sum to their window: a fault of ours, not of the data."""


def ledger(tables: Tables) -> Ledger:
    """Enter every nanosecond of a capture's steps under its key."""
    model = device_model(tables)
    divided = partition(model)
    has_device = model.device is not None and bool(model.tasks.height)
    names = _task_names(model) if has_device else None
    work = [_busy(model, names)] if names is not None else _host(model, divided)
    keys, cells = _joined([_idle(divided, () if has_device else _DIVIDED), *work])
    totals = divided.windows["total"].to_numpy()
    _check(cells, totals)
    first = _warm_up(totals)
    kept = cells.filter(pl.col("window") >= first).with_columns(pl.col("window") - first) if first else cells
    sequence = _sequence(model, names, _median(totals, first)) if names is not None else _no_sequence()
    return Ledger(keys, kept, totals[first:], model.steps[first:], sequence, first)


def _check(cells: pl.DataFrame, totals: Ints) -> None:
    found = np.zeros(totals.size, dtype=np.int64)
    np.add.at(found, cells["window"].to_numpy(), cells["ns"].to_numpy())
    if not np.array_equal(found, totals):
        raise LedgerError(f"entries sum to {found.tolist()}, windows to {totals.tolist()}")


def _warm_up(totals: Ints) -> int:
    """How many windows at the begin, at most a quarter, are far longer than all that follow."""
    for first in range(totals.size // 4, 0, -1):
        if totals[:first].min() > WARM_UP * totals[first:].max():
            return first
    return 0


def _median(totals: Ints, first: int) -> int:
    order = np.argsort(totals[first:], kind="stable")
    return first + int(order[(order.size - 1) // 2])


Entries = tuple[pl.DataFrame, pl.DataFrame]  # keys, and cells that name them by row


def _joined(entries: Iterable[Entries]) -> Entries:
    keys, cells, offset = [], [pl.DataFrame(schema=CELLS)], 0
    for own, rows in entries:
        keys.append(own.select(pl.col(name).cast(pl.String).fill_null("") for name in KEY))
        cells.append(rows.select(pl.col(name).cast(dtype) for name, dtype in CELLS.items()).with_columns(pl.col("key") + offset))
        offset += own.height
    return pl.concat(keys), pl.concat(cells)


def _entries(frame: pl.DataFrame, names: Sequence[str]) -> Entries:
    """Keys and cells of rows that name their key in some columns; the other names of the key are empty."""
    keys = frame.select(names).unique(maintain_order=True).with_row_index("key")
    cells = frame.join(keys, on=list(names), how="left", nulls_equal=True, maintain_order="left").select(*CELLS)
    return keys.with_columns(pl.lit("").alias(name) for name in KEY if name not in names), cells


# Idle time and time of the host


def _idle(divided: Partition, left_out: tuple[str, ...]) -> Entries:
    """One key per part that is not work of the device; its calls are the windows in which it occurs."""
    chosen = [name for name in divided.parts if name not in BUSY and name not in left_out]
    long = divided.windows.with_row_index("window").unpivot(chosen, index="window", variable_name="part", value_name="ns")
    return _entries(long.filter(pl.col("ns") > 0).with_columns(calls=pl.lit(1)), ["part"])


_DIVIDED = ("host.operator", "host.python", "host.other")


def _host(model: DeviceModel, divided: Partition) -> Iterator[Entries]:
    """Time of a capture without a device, by operator.

    While the main thread only waits (nothing recorded, or Python frames), another thread may work: autograd runs backward on a
    thread of its own. That time goes to its operators; what is left has none.
    """
    tid = model.main_tid
    if tid is None:
        yield _idle(divided, tuple(name for name in divided.parts if name not in _DIVIDED))
        return
    layers = model.layers(tid)
    covered = spans_of(pl.DataFrame({"start_ns": [model.start_ns], "end_ns": [model.end_ns]}))
    other = covered
    for spans in layers.values():
        other = minus(other, spans)
    ops = model.tables.ops.filter((pl.col("scope").fill_null(0) != USER_RANGE) & ~is_step())
    ops = ops.sort("start_ns", "end_ns", descending=[False, True])
    yield from _by_operator(model, ops, tid, "host.operator", layers["operator"])
    busiest = ops.filter(pl.col("tid") != tid).group_by("tid").len().sort("len", "tid", descending=[True, False])["tid"].to_list()
    for part, rest in (("host.python", layers["python"]), ("host.other", other)):
        for thread in busiest:
            yield from _by_operator(model, ops, thread, part, rest)
            rest = minus(rest, spans_of(ops.filter(pl.col("tid") == thread)))
        left = rest.within(model.windows[:-1], model.windows[1:])
        rows = pl.DataFrame({"window": np.arange(model.count), "ns": left}).filter(pl.col("ns") > 0)
        yield _entries(rows.with_columns(part=pl.lit(part), calls=pl.lit(1)), ["part"])


def _by_operator(model: DeviceModel, ops: pl.DataFrame, tid: int, part: str, spans: Spans) -> Iterator[Entries]:
    """A set of time by the innermost operator of a thread; time in which it has none is left out."""
    own = ops.filter(pl.col("tid") == tid)
    if not own.height or not spans.start.size:
        return
    bounds = np.concatenate((own["start_ns"].to_numpy(), own["end_ns"].to_numpy(), model.windows))
    edges = np.unique(np.clip(bounds, model.start_ns, model.end_ns))
    begin, end = edges[:-1], edges[1:]
    # Pieces between bounds tile the range, so their sum is exact however operators nest.
    points = pl.DataFrame({"tid": pl.repeat(tid, begin.size, dtype=own["tid"].dtype, eager=True), "time_ns": begin})
    row = op_tree.row_numbers(op_tree.innermost(own, points, at_end=False, parent=op_tree.parents(own, by=("tid",))))
    spent = spans.within(begin, end)
    kept = (row >= 0) & (spent > 0)
    if not kept.any():
        return
    pieces = pl.DataFrame({"window": model.window_of(begin[kept]), "op": own["name"].gather(row[kept]), "ns": spent[kept]})
    times = pieces.group_by("window", "op").agg(pl.col("ns").sum())
    started = pl.DataFrame({"window": model.window_of(own["start_ns"].to_numpy()), "op": own["name"]})
    calls = started.group_by("window", "op").agg(calls=pl.len())
    found = times.join(calls, on=["window", "op"], how="left").with_columns(pl.col("calls").fill_null(0))
    yield _entries(found.sort("window", pl.col("op").cast(pl.String)).with_columns(part=pl.lit(part)), ["part", "op"])


# Work of the device


@dataclass(frozen=True)
class TaskNames:
    """What the tasks of a model are called: one row per task with part (number), module (number of a path), op, kernel, op_row."""

    rows: pl.DataFrame
    paths: pl.Series

    def written(self, frame: pl.DataFrame) -> pl.DataFrame:
        """With the words of part and module in place of their numbers."""
        paths = self.paths if self.paths.len() else pl.Series([""])
        return frame.with_columns(
            part=frame["part"].replace_strict(dict(enumerate(BUSY)), return_dtype=pl.String),
            module=paths.cast(pl.String).gather(frame["module"]),
        )


def _task_names(model: DeviceModel) -> TaskNames:
    tables, tasks = model.tables, model.tasks
    row = tasks["row"].to_numpy()
    kernel, kind = (_unnamed(tasks.height).alias(name) for name in ("kernel", "kind"))
    collective = tables.collectives.select(pl.coalesce("op_type", "name")).to_series()
    for table, names, kinds in ((0, tables.kernels["name"], tables.kernels["op_type"]), (1, collective, collective)):
        mask = tasks["table"] == table
        if mask.any():
            kernel = _scatter(kernel, mask, names.gather(row[mask.to_numpy()]))
            kind = _scatter(kind, mask, kinds.gather(row[mask.to_numpy()]))
    op = _operators(model)
    name = tables.ops["name"].gather(pl.Series(op).replace(-1, None)) if tables.ops.height else _unnamed(tasks.height)
    number, paths = module_paths(tables)
    known = pl.Series(op).replace(-1, None)
    frame = pl.DataFrame(
        {
            "part": tasks["kind"],
            "module": pl.Series(number).gather(known).replace(-1, None) if number.size else known,
            # Without a record of the host the kind of a kernel stands for its operator.
            "op": pl.select(pl.coalesce(name, kind, kernel)).to_series() if name.null_count() else name,
            "kernel": kernel,
            "op_row": op,
        }
    )
    return TaskNames(frame, paths)


def _unnamed(count: int) -> pl.Series:
    return pl.Series([None], dtype=pl.Categorical()).extend_constant(None, count - 1)


def _scatter(column: pl.Series, mask: pl.Series, values: pl.Series) -> pl.Series:
    """The column with some rows replaced by values, in order."""
    places = pl.DataFrame({"row": mask.arg_true(), "value": values.cast(column.dtype)})
    whole = pl.DataFrame({"row": pl.int_range(len(column), eager=True, dtype=pl.UInt32), "old": column})
    joined = whole.join(places, on="row", how="left", maintain_order="left")
    found: pl.Series = joined.select(pl.coalesce("value", "old")).to_series()
    return found.alias(column.name)


def _operators(model: DeviceModel) -> Ints:
    """Row of the operator of each task: the one that launched it, else the one around its issue; -1 without any."""
    ops, tasks = model.tables.ops, model.tasks
    op = op_tree.row_numbers(tasks["op"])
    # A collective is its own operator; what the host did when it was issued says little.
    unknown = np.flatnonzero((op < 0) & (tasks["table"] == 0).to_numpy())
    if not ops.height:
        return op
    if unknown.size:
        points = tasks.select(tid="issue_tid", time_ns="issue_ns")[unknown]
        if points["time_ns"].count() and points["tid"].count():
            order = ops.select("tid", "start_ns", "end_ns").with_row_index("at").sort(
                "start_ns", "end_ns", descending=[False, True], maintain_order=True
            )  # fmt: skip
            around = op_tree.row_numbers(op_tree.innermost(order, points, parent=op_tree.parents(order, by=("tid",))))
            rows = order["at"].to_numpy().astype(np.int64)
            op[unknown] = np.where(around >= 0, rows[around], -1)
    # Ranges of a device's library (aclnnAdd) stand inside the framework's operator, which other devices have too.
    own, above = matches(ops["name"], DISPATCHED), op_tree.row_numbers(ops["parent"])
    outer = np.where(op >= 0, above[op], -1)
    op = np.where((outer >= 0) & ~own[op] & own[outer], outer, op)
    # A step, or a range that the user named, is not an operator.
    plain = ops.select(~is_step() & (pl.col("scope").fill_null(0) != USER_RANGE)).to_series().to_numpy()
    return np.where((op >= 0) & plain[op], op, -1)


def _busy(model: DeviceModel, names: TaskNames) -> Entries:
    """Exclusive time of tasks by window and key; a call belongs to the window in which it starts."""
    columns = list(KEY)
    keys = names.rows.select(columns).unique(maintain_order=True).with_row_index("key")
    numbers = names.rows.join(keys, on=columns, how="left", nulls_equal=True, maintain_order="left")["key"].cast(pl.Int64)
    spent = exclusive_time(model)
    times = spent.select("window", "ns", key=numbers.gather(spent["task"])).group_by("window", "key").agg(pl.col("ns").sum())
    started = pl.DataFrame({"window": model.window_of(model.tasks["start_ns"].to_numpy()), "key": numbers})
    inside = started.filter(pl.col("window").is_between(0, model.count - 1))
    calls = inside.group_by("window", "key").agg(calls=pl.len().cast(pl.Int64))
    cells = times.join(calls, on=["window", "key"], how="full", coalesce=True).with_columns(pl.col("ns", "calls").fill_null(0))
    return names.written(keys), cells.sort("window", "key")


def _no_sequence() -> pl.DataFrame:
    return pl.DataFrame(schema={"part": pl.String, "module": pl.String, "op": pl.String})


def _sequence(model: DeviceModel, names: TaskNames, window: int) -> pl.DataFrame:
    """Operators of one window in the order of issue, each call once."""
    inside = pl.Series(model.window_of(model.tasks["start_ns"].to_numpy()) == window)
    at = model.tasks["issue_ns"].fill_null(model.tasks["start_ns"])
    rows = names.rows.with_columns(at=at).filter(inside & (names.rows["op_row"] >= 0))
    rows = rows.unique("op_row", keep="first", maintain_order=True).sort("at", maintain_order=True)
    return names.written(rows).select("part", pl.col("module").fill_null(""), pl.col("op").cast(pl.String))

# SPDX-License-Identifier: Apache-2.0
"""What a device did at each moment: computed, communicated, both or nothing (docs/formats/outputs.md 2.6).

Spans are half-open. Every function works per group (`by`, such as the device): spans of different groups never meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.tables import TEXT, Tables, in_order

COMPUTING = "Computing"
COMMUNICATION = "Communication"
NOT_OVERLAPPED = "Communication(Not Overlapped)"
FREE = "Free"
LAYERS = (COMPUTING, COMMUNICATION, NOT_OVERLAPPED, FREE)

# Work that the first three layers stand for, and the profiler's own tasks: they do not stretch the range of Free.
NO_FREE_RANGE = (
    "KERNEL_AICORE", "KERNEL_AIVEC", "FFTS_PLUS", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV", "PROFILING_ENABLE", "PROFILING_DISABLE",
)  # fmt: skip


def merge(spans: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Join spans that overlap or touch; the result is sorted, disjoint and has no empty span."""
    ordered, grouped = _reaching(spans.filter(pl.col("start_ns") < pl.col("end_ns")), by)
    opens = (pl.col("start_ns") > grouped(pl.col("reach").shift(1))).fill_null(True)
    # The reach of the last span of an island is its end; this spares a group per island.
    return (
        ordered.with_columns(opens=opens)
        .select(
            pl.col(*by, "start_ns").filter("opens"),
            pl.col("reach").filter(pl.col("opens").shift(-1).fill_null(True)).alias("end_ns"),
        )
        .collect(engine="in-memory")
    )


def gaps(spans: pl.DataFrame, within: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Parts of `within` (one span per group, which holds all others) that no span covers."""
    edges = [within.with_columns(pl.col(one).alias(other)) for one, other in (("start_ns", "end_ns"), ("end_ns", "start_ns"))]
    ordered, grouped = _reaching(pl.concat([edges[0], spans.select(within.columns), edges[1]]), by)
    following = grouped(pl.col("start_ns").shift(-1))
    return (
        ordered.select(*by, start_ns="reach", end_ns=following)
        .filter(pl.col("start_ns") < pl.col("end_ns"))
        .collect(engine="in-memory")
    )


def _reaching(spans: pl.DataFrame, by: Sequence[str]) -> tuple[pl.LazyFrame, Callable[[pl.Expr], pl.Expr]]:
    """Spans in order with `reach`, the latest end so far in their group, and how to stay inside a group."""
    ordered = in_order(spans[[*by, "start_ns", "end_ns"]], [*by, "start_ns"])
    single = not ordered.height or all(ordered[name][0] == ordered[name][-1] for name in by)

    def grouped(value: pl.Expr) -> pl.Expr:
        return value if single else value.over(by)

    return ordered.lazy().with_columns(reach=grouped(pl.col("end_ns").cum_max())), grouped


def subtract(spans: pl.DataFrame, holes: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Parts of `spans` that no hole covers."""
    return _sweep(spans, holes, by, inside=False)


def intersect(spans: pl.DataFrame, others: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Parts that both cover."""
    return _sweep(spans, others, by, inside=True)


def _sweep(spans: pl.DataFrame, others: pl.DataFrame, by: Sequence[str], *, inside: bool) -> pl.DataFrame:
    sets = [merge(spans, by), merge(others, by)]
    groups = (
        pl.concat([merged[list(by)] for merged in sets]).lazy().unique().sort(*by).collect(engine="in-memory")
        if by
        else pl.DataFrame({"all": [True]})
    )
    if groups.height == 1:
        sets[1] = _meeting(sets[1], sets[0])
    group = np.concatenate([np.tile(_group_numbers(merged, groups, by), 2) for merged in sets])
    time = np.concatenate([merged[bound].to_numpy() for merged in sets for bound in ("start_ns", "end_ns")])
    step = np.concatenate([np.repeat(np.array([1, -1], dtype=np.int64), merged.height) for merged in sets])
    is_ours = np.arange(time.size) < 2 * sets[0].height
    # A stable sort of a few sorted runs is all but linear.
    order = np.lexsort((time, group)) if groups.height > 1 else np.argsort(time, kind="stable")
    ours, theirs = np.cumsum(np.where(is_ours, step, 0)[order]), np.cumsum(np.where(is_ours, 0, step)[order])
    start, end = time[order], np.append(time[order][1:], 0)
    # Every group closes all its spans, so nothing is open between groups. Neighbouring pieces cannot both be kept: bounds of
    # one set never meet, because the set is merged.
    kept = np.flatnonzero((ours > 0) & ((theirs > 0) == inside) & (start < end))
    return groups[group[order][kept]].select(*by, start_ns=pl.Series(start[kept]), end_ns=pl.Series(end[kept]))


def _meeting(others: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Those that share a moment with a span; a few collectives meet few of all kernels. Both are merged, of one group."""
    first = np.searchsorted(others["end_ns"].to_numpy(), spans["start_ns"].to_numpy(), side="right")
    beyond = np.searchsorted(others["start_ns"].to_numpy(), spans["end_ns"].to_numpy(), side="left")
    met = np.bincount(first, minlength=others.height + 1) - np.bincount(beyond, minlength=others.height + 1)
    return others.filter(np.cumsum(met[:-1]) > 0)


def _group_numbers(frame: pl.DataFrame, groups: pl.DataFrame, by: Sequence[str]) -> npt.NDArray[np.int64]:
    if groups.height == 1:
        return np.zeros(frame.height, dtype=np.int64)
    numbered = groups.with_row_index("number")
    found = frame.select(by).join(numbered, on=list(by), how="left", nulls_equal=True, maintain_order="left")
    return np.asarray(found["number"].to_numpy(), dtype=np.int64)


def hull(spans: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """One span per group, from the first start to the last end."""
    bounds = [pl.col("start_ns").min(), pl.col("end_ns").max()]
    return spans.group_by(*by, maintain_order=True).agg(bounds) if by else spans.select(bounds).drop_nulls()


def computing(kernels: pl.DataFrame) -> pl.DataFrame:
    """Tasks that count as computing; the kernels by which AI CPU and vector cores drive communication do not."""
    return kernels.filter(_computes())


def _computes() -> pl.Expr:
    return (pl.col("kind") == "compute") & ~drives_communication()


def drives_communication() -> pl.Expr:
    """Whether a row of `kernels` is one by which AI CPU or vector cores drive communication."""
    name = pl.col("name").cast(pl.String).str
    return (name.ends_with("AicpuKernel") | name.ends_with("AivKernel")).fill_null(False)


def layers(
    kernels: pl.DataFrame, collectives: pl.DataFrame, *, by: Sequence[str] = ("device",), whole_device: bool = True
) -> pl.DataFrame:
    """The four layers of the overlap analysis: columns of `by`, layer, start_ns, end_ns.

    Args:
        kernels: table `kernels`.
        collectives: table `collectives`.
        by: groups that are analysed apart.
        whole_device: Free reaches from the first to the last task of any kind on the device; when false, only from the
            first to the last computing or communicating one, as files before 2026 have it.
    """
    columns = [*by, "start_ns", "end_ns"]
    nearest = [*by, "start_ns", _nearest_end()]
    compute = merge(kernels.lazy().filter(_computes()).select(nearest).collect(engine="in-memory"), by)
    communication = merge(collectives.select(nearest), by)
    busy = pl.concat([compute, communication])
    outer = busy
    if whole_device:
        outer = pl.concat([busy, kernels.lazy().filter(_stretches_free()).select(columns).collect(engine="in-memory")])
    parts = {
        COMPUTING: compute,
        COMMUNICATION: communication,
        NOT_OVERLAPPED: subtract(communication, compute, by),
        FREE: gaps(busy, hull(outer, by), by),
    }
    return pl.concat(
        part.lazy().select(*by, pl.lit(name, TEXT).alias("layer"), "start_ns", "end_ns") for name, part in parts.items()
    ).collect(engine="in-memory")


def device_layers(tables: Tables, *, whole_device: bool | None = None) -> pl.DataFrame:
    """`layers` of each device; those that `link` has kept when they are the wanted ones.

    Args:
        tables: whose `kernels` and `collectives` are those that were linked.
        whole_device: how far Free reaches; by default as the capture's own generation has it.
    """
    usual = tables.facts.generation not in ("G1", "G2")
    if tables.overlap.height and whole_device in (None, usual):
        return tables.overlap
    return layers(tables.kernels, tables.collectives, whole_device=usual if whole_device is None else whole_device)


def _nearest_end() -> pl.Expr:
    # Timelines give durations with parts of a nanosecond, and spans cut these off: half a nanosecond too short on average.
    fraction = pl.col("duration_ns") - (pl.col("end_ns") - pl.col("start_ns"))
    rounds_up = ((fraction >= 0.5) & (fraction < 1)).fill_null(False)
    return pl.col("end_ns") + rounds_up.cast(pl.Int64)


def _stretches_free() -> pl.Expr:
    # Parsed timelines do not say what the host queued; there the kind of the task and its name tell.
    by_type = ~pl.col("host_task_type").is_in(NO_FREE_RANGE)
    guessed = (pl.col("kind") != "compute") & ~pl.col("name").is_in(NO_FREE_RANGE).fill_null(False)
    return pl.when(pl.col("host_task_type").is_not_null()).then(by_type).otherwise(guessed).fill_null(False)

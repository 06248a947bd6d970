# SPDX-License-Identifier: Apache-2.0
"""Hardware counters: their names in table `kernel_metrics` (no unit, times in ns), and as columns of the csv files of Ascend."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import polars as pl

from stepscope.render.csv_file import NOT_KNOWN, Cells, thousandths
from stepscope.render.microseconds import microseconds
from stepscope.render.number_forms import SHORTEST, SHORTEST_PLAIN_ZERO, THOUSANDTHS, WHOLE, Form
from stepscope.render.parts import Numbers

# Two totals have another stem in the csv than in the database (docs/formats/outputs.md 4, docs/formats/enums.md 5).
_CSV_STEM = {"aic_total_time": "aicore_time", "aiv_total_time": "aiv_time"}
_STEM = {stem: name for name, stem in _CSV_STEM.items()}

_UNIT = re.compile(r"\([^()]*\)$")
_METRIC = re.compile(r"[a-z][A-Za-z0-9_]*(\((us|GB/s|%|KB|MB/s)\))?")


def _pairs(core: str, parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{core}_{part}_{kind}" for part in parts for kind in ("time(us)", "ratio"))


def _each(core: str, parts: Iterable[str], suffix: str) -> tuple[str, ...]:
    return tuple(f"{core}_{part}{suffix}" for part in parts)


_AIC = ("aicore_time(us)", "aic_total_cycles")
_AIV = ("aiv_time(us)", "aiv_total_cycles")
_CACHE = (
    "write_cache_hit", "write_cache_miss_allocate", "r0_read_cache_hit", "r0_read_cache_miss_allocate",
    "r1_read_cache_hit", "r1_read_cache_miss_allocate",
)  # fmt: skip
_ACCESS = ("read_main_memory", "write_main_memory", "GM_to_L1", "L0C_to_L1", "L0C_to_GM", "GM_to_UB", "UB_to_GM")

THREE_DIGITS = ("cube_utilization(%)",)  # in op_summary always

# docs/formats/outputs.md 4: the columns after `Context ID`, by the setting `aic_metrics`.
CSV_COLUMNS: dict[str, tuple[str, ...]] = {
    "PipeUtilization": (
        *_AIC, *_pairs("aic", ("mac", "scalar", "mte1", "mte2", "fixpipe")), "aic_icache_miss_rate",
        *_AIV, *_pairs("aiv", ("vec", "scalar", "mte2", "mte3")), "aiv_icache_miss_rate",
        *THREE_DIGITS,
    ),
    "ArithmeticUtilization": (
        *_AIC, "aic_mac_fp16_ratio", "aic_mac_int8_ratio", "aic_cube_fops",
        *_AIV, *_each("aiv", ("vec_fp32", "vec_fp16", "vec_int32", "vec_misc"), "_ratio"), "aiv_vector_fops",
    ),
    "Memory": (
        *_AIC,
        *_each("aic", ("l1_read", "l1_write", "main_mem_read", "main_mem_write", "l2_read", "l2_write"), "_bw(GB/s)"),
        *_AIV,
        *_each("aiv", ("ub_read", "ub_write", "main_mem_read", "main_mem_write", "l2_read", "l2_write"), "_bw(GB/s)"),
    ),
    "MemoryL0": (
        *_AIC,
        *_each("aic", ("l0a_read_bw", "l0a_write_bw", "l0b_read_bw", "l0b_write_bw", "l0c_read_bw_cube", "l0c_write_bw_cube"),
               "(GB/s)"),
        *_AIV, *_each("aiv", ("l0c_read", "l0c_write"), "_bw(GB/s)"),
    ),
    "MemoryUB": (
        *_AIC, *_each("aic", ("ub_read", "ub_write"), "_bw_scalar(GB/s)"),
        *_AIV, *_each("aiv", ("ub_read_bw_vector", "ub_write_bw_vector", "ub_read_bw_scalar", "ub_write_bw_scalar"), "(GB/s)"),
    ),
    "ResourceConflictRatio": (*_AIC, *_AIV, *_each("aiv", ("vec_bankgroup", "vec_bank", "vec_resc"), "_cflt_ratio")),
    "L2Cache": (*_AIC, *_each("aic", _CACHE, ""), *_AIV, *_each("aiv", _CACHE, "")),
    "MemoryAccess": (*_AIC, *_each("aic", _ACCESS, "_datas(KB)"), *_AIV, *_each("aiv", _ACCESS, "_datas(KB)")),
    "AiCoreNone": (),
}  # fmt: skip

# docs/formats/enums.md 5: how the setting is stored in profiler_info.
_SETTING = {
    "ACL_AICORE_NONE": "AiCoreNone",
    "ACL_AICORE_PIPE_UTILIZATION": "PipeUtilization",
    "ACL_AICORE_ARITHMETIC_UTILIZATION": "ArithmeticUtilization",
    "ACL_AICORE_MEMORY_BANDWIDTH": "Memory",
    "ACL_AICORE_L0B_AND_WIDTH": "MemoryL0",
    "ACL_AICORE_MEMORY_UB": "MemoryUB",
    "ACL_AICORE_RESOURCE_CONFLICT_RATIO": "ResourceConflictRatio",
    "ACL_AICORE_L2_CACHE": "L2Cache",
    "ACL_AICORE_MEMORY_ACCESS": "MemoryAccess",
    "PipeUtilizationExct": "PipeUtilization",
}


def is_metric(csv_name: str) -> bool:
    """Whether a csv column of a kernel is a counter: those are snake case, all others start with a capital."""
    return _METRIC.fullmatch(csv_name) is not None


def to_canonical(csv_name: str) -> tuple[str, float]:
    """The name in `kernel_metrics` and the factor: value = cell * factor."""
    stem = _UNIT.sub("", csv_name)
    return _STEM.get(stem, stem), 1000.0 if csv_name.endswith("(us)") else 1.0


def to_csv(name: str) -> tuple[str, float]:
    """The csv column of a metric and the factor of `to_canonical`: cell = value / factor."""
    stem = _CSV_STEM.get(name, name)
    if stem.endswith("_time"):
        return f"{stem}(us)", 1000.0
    if re.search(r"_bw(_cube|_vector|_scalar|_mte)?$", stem):
        return f"{stem}(GB/s)", 1.0
    if stem.endswith("_datas"):
        return f"{stem}(KB)", 1.0
    return (f"{stem}(%)" if stem == "cube_utilization" else stem), 1.0


def csv_columns(aic_metrics: str, metrics: Collection[str] = ()) -> tuple[str, ...]:
    """The csv columns of a metric set in their order.

    The set is the one of the setting (`PipeUtilization`, `ACL_AICORE_PIPE_UTILIZATION`, …); where the
    setting is unknown, the one that most of the given metrics belong to. Metrics that mostly belong to no
    set (other chips have other ones, docs/formats/cann.md 6) are taken as they stand.
    """
    known = set(metrics)

    def shared(columns: Iterable[str]) -> int:
        return sum(to_canonical(column)[0] in known for column in columns)

    named = _SETTING.get(aic_metrics, aic_metrics)
    if named in CSV_COLUMNS:
        chosen = CSV_COLUMNS[named]
    else:
        chosen = max(CSV_COLUMNS.values(), key=lambda columns: shared(columns) or -len(columns))
    return chosen if shared(chosen) * 2 >= len(known) else tuple(to_csv(name)[0] for name in metrics)


def counter_cells(
    metrics: pl.DataFrame,
    rows: pl.DataFrame,
    aic_metrics: str,
    fixed: Collection[str] = (),
    plain_zero: Collection[str] = (),
    *,
    as_recorded: bool = False,
) -> list[Cells]:
    """One column per hardware counter of the chosen set, also where the source lacks it (databases have no cube_utilization).

    Args:
        metrics: table `kernel_metrics`.
        rows: of the file, with `kernel`: the row of `kernels`, null for what is none.
        aic_metrics: the chosen set.
        fixed: titles of columns that always have three digits after the point.
        plain_zero: titles of columns whose 0 has no point.
        as_recorded: see `counter_titles`.
    """
    titles = counter_titles(metrics, aic_metrics, as_recorded=as_recorded)
    wanted = {to_canonical(title)[0] for title in titles}
    place = counter_places(metrics, rows)
    shown = metrics.select(pl.col(name).gather(place) for name in metrics.columns if name in wanted)
    return [(title, [Numbers(_counted(title, shown, len(place)), _form(title, fixed, plain_zero), NOT_KNOWN)]) for title in titles]


def counter_titles(metrics: pl.DataFrame, aic_metrics: str, *, as_recorded: bool = False) -> tuple[str, ...]:
    """Titles of the hardware counters of a capture; none where nothing was counted.

    `as_recorded`: the chip's files have exactly the metrics of the table, in its order, not those of an A2.
    """
    names = [name for name in metrics.columns if name != "kernel"] if metrics.height else []
    if as_recorded or not names:
        return tuple(to_csv(name)[0] for name in names)
    return csv_columns(aic_metrics, names)


def counter_places(metrics: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """The row of `kernel_metrics` of each row of the file, which names the row of `kernels` in `kernel`."""
    places = metrics.select("kernel").with_row_index("place")
    return rows.select("kernel").join(places, on="kernel", how="left", maintain_order="left")["place"]


def is_whole(title: str) -> bool:
    """Whether a counter is a whole number in the file; the others have up to three digits after the point."""
    return title.endswith("cycles")


def counter_values(title: str, metrics: pl.DataFrame, place: pl.Series) -> pl.Series:
    """One counter of the rows at `place`: whole numbers, or whole thousandths where the file has digits after the point."""
    name = to_canonical(title)[0]
    return _counted(title, metrics.select(pl.col(name).gather(place)) if name in metrics.columns else metrics, len(place))


def _counted(title: str, shown: pl.DataFrame, height: int) -> pl.Series:
    name, factor = to_canonical(title)
    if name not in shown.columns:
        return pl.Series(name, [None] * height, dtype=pl.Int64)
    values = shown[name]
    if is_whole(title):
        whole: pl.Series = values.round().cast(pl.Int64)
        return whole
    return thousandths(values if factor == 1.0 else microseconds(values))


def _form(title: str, fixed: Collection[str], plain_zero: Collection[str]) -> Form:
    if is_whole(title):
        return WHOLE
    if title in plain_zero:
        return SHORTEST_PLAIN_ZERO
    return THOUSANDTHS if title in fixed else SHORTEST

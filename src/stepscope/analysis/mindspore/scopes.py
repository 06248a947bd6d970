# SPDX-License-Identifier: Apache-2.0
"""Which part of the network ran when: nested bars from the scopes in the names of kernels (docs/formats/mindspore.md 10)."""

from __future__ import annotations

import polars as pl

from stepscope.tables import TEXT, Tables

TOPS = ("Default", "Gradients", "recompute_Default")
_SCHEMA = {"depth": pl.Int64(), "name": TEXT, "start_ns": pl.Int64(), "end_ns": pl.Int64()}


def scope_bars(tables: Tables) -> pl.DataFrame:
    """Bars by depth: depth, name, start_ns, end_ns. Neighbours with the same scope make one bar.

    A kernel that starts while the outermost bar still lasts runs beside the one shown and is left out.
    """
    kernels = (
        tables.kernels.select("start_ns", "end_ns", text=_scoped_name(tables))
        .drop_nulls("text")
        .sort("start_ns", maintain_order=True)
    )
    closed: list[tuple[int, str, int, int]] = []
    bars: list[list[object]] = []
    reach = -1
    for start, end, names in kernels.select("start_ns", "end_ns", pl.col("text").str.split("/")).iter_rows():
        if bars and start < reach:
            continue
        reach = end
        same = True
        for depth, name in enumerate(names[:-1]):
            if depth == len(bars):
                bars.append([name, start, end])
            elif same and bars[depth][0] == name:
                bars[depth][2] = end
            else:
                closed.append((depth, *bars[depth]))  # type: ignore[arg-type]
                bars[depth] = [name, start, end]
                same = False
    closed += [(depth, *bar) for depth, bar in enumerate(bars)]  # type: ignore[misc]
    return pl.DataFrame(closed, schema=_SCHEMA, orient="row").sort("depth", "start_ns", maintain_order=True)


def _scoped_name(tables: Tables) -> pl.Series:
    """The name with its scope, of the kernel or of the range that launched it: the deeper one."""
    own = tables.kernels["name"].cast(pl.String)
    if not tables.ops.height:
        launcher = pl.Series([None], dtype=pl.String).new_from_index(0, own.len())
    else:
        launcher = tables.ops["name"].cast(pl.String).gather(tables.kernels["op"]).str.extract(r"([^:]*)$")
    frame = pl.DataFrame({"own": own, "launcher": launcher})
    depth = [pl.col(name).str.count_matches("/").fill_null(0) for name in ("own", "launcher")]
    deeper = pl.when(depth[1] > depth[0]).then("launcher").otherwise("own")
    scoped = pl.any_horizontal(pl.col(name).str.starts_with(top).fill_null(False) for name in ("own", "launcher") for top in TOPS)
    shown: pl.Series = frame.select(pl.when(scoped & (deeper.str.contains("/"))).then(deeper).alias("text")).to_series()
    return shown

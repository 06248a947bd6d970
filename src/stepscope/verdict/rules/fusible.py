# SPDX-License-Identifier: Apache-2.0
"""Sequences of operators and kernels that one fused operator could replace."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.verdict.case import Case, Draft
from stepscope.verdict.finding import CannotTell
from stepscope.verdict.settings import fusible_patterns


def fusible(case: Case) -> Iterator[Draft]:
    """Patterns of operators that follow each other on one thread, with the fused operator that does the same."""
    case.need_device()
    ops = case.tables.ops
    kernels = case.kernels.drop_nulls("op")
    if not ops.height:
        raise CannotTell("ops")
    if not kernels.height:
        raise CannotTell("unlinked")
    patterns = _possible(ops["name"])
    if not patterns:
        return
    rows = kernels["op"].unique().sort()
    frame = ops.select("tid", "name")[rows].with_columns(op=rows)
    found: dict[str, list[list[int]]] = defaultdict(list)
    names = frame["name"].cast(pl.String).str.replace(r"^(aten|npu|torch_npu)::", "").str.replace(r"_$", "").str.replace(r"^_", "")
    for tid in frame["tid"].unique().to_list():
        own = (frame["tid"] == tid).fill_null(False)
        line, places = _line(names.filter(own).to_list())
        numbers = frame["op"].filter(own).to_list()
        for pattern in patterns:
            for match in re.finditer(pattern["match"], line):
                first, beyond = places[match.start()], places[match.end()] if match.end() in places else len(numbers)
                found[pattern["name"]].append(numbers[first:beyond])
    by_op = kernels.select("op", "task", "row", "ns", "exclusive_ns")
    for pattern in patterns:
        matches = found.get(pattern["name"])
        if not matches:
            continue
        groups = pl.DataFrame(
            {"op": [op for match in matches for op in match], "match": [n for n, match in enumerate(matches) for _ in match]}
        )
        own = groups.join(by_op, on="op", how="inner").sort("match", "ns", descending=[False, True])
        rest = own.filter(pl.int_range(pl.len()).over("match") > 0)  # all but the longest kernel of a match
        if not rest.height:
            continue
        mask = case.task_mask(rest["task"])
        scale = 1 - case.limit("fusible", "gain")
        saved, how = case.saved_without_tasks(mask, scale=scale)
        api = pattern["npu"] if case.kind == "npu" else pattern["gpu"]
        yield Draft(
            "fusible",
            saved,
            "medium",
            how,
            evidence=case.rows_of("kernels", rest["row"]),
            where=case.places(rest["op"], rest["exclusive_ns"]),
            params={"pattern": pattern["name"], "count": round(len(matches) / case.count), "api": api},
            duration=case.duration_without(mask, scale=scale) if case.schedule is not None else None,
        )


def _possible(names: pl.Series) -> list[dict[str, str]]:
    """Patterns whose rarest operator occurs at all: most captures have few of them."""
    distinct = ";".join(names.unique().drop_nulls().cast(pl.String).to_list())
    return [pattern for pattern in fusible_patterns() if pattern["needs"] in distinct]


def _line(names: list[str]) -> tuple[str, dict[int, int]]:
    """Names as one text with `;` behind each, and the number of the name that begins at each place."""
    places, at = {}, 0
    for number, name in enumerate(names):
        places[at] = number
        at += len(name) + 1
    places[at] = len(names)
    return ";".join(names) + ";", places


def repeated_sequence(case: Case) -> Iterator[Draft]:
    """Short sequences of kernels that recur and leave the device idle in between."""
    case.need_device()
    if case.simulated:
        raise CannotTell("modelled")  # gaps between its kernels are those of the machine that simulates it
    kernels = case.kernels.sort("stream", "start_ns")
    if kernels.height < 2 * case.limit("repeated-sequence", "times"):
        raise CannotTell("kernels")
    if case.idle_ns("operator", "api", "queue", "launch") < case.limit("severity", "low") * case.total_ns:
        return  # nothing to save between the kernels
    label = pl.coalesce(pl.col("op_type").cast(pl.String), pl.col("name").cast(pl.String))
    codes = kernels.select(label.rank("dense")).to_series().to_numpy().astype(np.int64)
    stream, start, end = (kernels[name].to_numpy() for name in ("stream", "start_ns", "end_ns"))
    busy = np.concatenate(([0], np.cumsum(end - start)))
    moved = _transfer_share(case, kernels)
    best: tuple[float, int, np.typing.NDArray[np.int64]] | None = None
    for length in range(int(case.limit("repeated-sequence", "longest")), int(case.limit("repeated-sequence", "shortest")) - 1, -1):
        if kernels.height < length:
            continue
        key = np.zeros(codes.size - length + 1, dtype=np.uint64)
        for offset in range(length):
            key = key * np.uint64(1_000_003) + codes[offset : codes.size - length + 1 + offset].astype(np.uint64)
        same = stream[: key.size] == stream[length - 1 :]
        first = np.flatnonzero(same)
        values, inverse, counts = np.unique(key[first], return_inverse=True, return_counts=True)
        for number in np.argsort(counts)[::-1][:5]:
            if counts[number] < case.limit("repeated-sequence", "times"):
                break
            at = _apart(first[inverse == number], length)
            wall = float((end[at + length - 1] - start[at]).sum())
            work = float((busy[at + length] - busy[at]).sum())
            rare = (
                at.size < case.limit("repeated-sequence", "times")
                or wall < case.limit("repeated-sequence", "share") * case.total_ns
            )
            moving = moved is not None and moved[at[:, None] + np.arange(length)].mean() > case.limit(
                "repeated-sequence", "mte_share"
            )
            if (
                rare
                or (work / max(wall, 1) >= case.limit("repeated-sequence", "busy") and not moving)
                or np.unique(codes[at[0] : at[0] + length]).size < 2
            ):
                continue
            if best is None or wall - work > best[0]:
                best = (wall - work, length, at)
        del values
    if best is not None:
        saved, length, at = best
        sequence = kernels[int(at[0]) : int(at[0]) + length].select(label).to_series().to_list()
        yield Draft(
            "repeated-sequence",
            min(saved * case.limit("fusible", "gain"), case.idle_ns("operator", "api", "queue", "launch")),
            "low",
            "model",
            bound="upper",
            evidence=case.rows_of("kernels", kernels["row"][int(at[0]) : int(at[0]) + length].to_list()),
            params={"sequence": " → ".join(map(str, sequence)), "times": round(at.size / case.count)},
            explains=("small-kernels", "host-dispatch"),
        )


def _transfer_share(case: Case, kernels: pl.DataFrame) -> np.typing.NDArray[np.float64] | None:
    """How much of each kernel its transfer pipes were busy; None without measured counters."""
    metrics = case.tables.kernel_metrics
    pipes = [name for name in metrics.columns if name.endswith(("mte1_ratio", "mte2_ratio", "mte3_ratio"))]
    if case.simulated or not metrics.height or not pipes:
        return None
    share = metrics.select("kernel", moved=pl.max_horizontal(pipes).fill_null(0.0)).unique("kernel", keep="first")
    joined = kernels.select("row").join(share, left_on="row", right_on="kernel", how="left", maintain_order="left")
    return np.asarray(joined["moved"].fill_null(0.0).to_numpy(), dtype=np.float64)


def _apart(places: np.typing.NDArray[np.int64], length: int) -> np.typing.NDArray[np.int64]:
    """Places that do not overlap, from the left."""
    kept, reach = [], -1
    for place in np.sort(places).tolist():
        if place >= reach:
            kept.append(place)
            reach = place + length
    return np.array(kept, dtype=np.int64)

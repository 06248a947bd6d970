# SPDX-License-Identifier: Apache-2.0
"""Rules about kernels by what they are: cores, types, shapes, sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.analysis.partition import names
from stepscope.analysis.partition.model import COPY
from stepscope.analysis.partition.spans import spans_of
from stepscope.analysis.source_lines import operator_modules
from stepscope.verdict.case import Case, Draft
from stepscope.verdict.finding import CannotTell
from stepscope.verdict.settings import fused_optimizers

MATMUL = r"(?i)matmul|(^|_)mm|addmm|bmm|gemm|conv|linear|attention"
CAST = r"(?i)(^|[_ ])cast([_ ]|$)|copy.*cast"
TRANSPOSE = r"(?i)transpose|transdata|permute|viewcopy|asstrided|contiguous|nchwtonhwc|nhwctonchw"
ATTENTION = r"(?i)attention"
FLOAT32 = r"(?i)^(float|float32|fp32|dt_float|c10::float)(;|$)"
BACKWARD = 1  # scope of a function of backward
BYTES = {"float16": 2, "bfloat16": 2, "half": 2, "bf16": 2, "fp16": 2, "dt_bf16": 2, "float": 4, "float32": 4, "int8": 1}


def _kernels(case: Case) -> pl.DataFrame:
    case.need_device()
    if not case.kernels.height:
        raise CannotTell("kernels")
    return case.kernels


def _mask(kernels: pl.DataFrame, pattern: str) -> pl.Series:
    """Kernels whose type or name matches."""
    return pl.Series(names.matches(kernels["op_type"], pattern) | names.matches(kernels["name"], pattern))


def _without(case: Case, rule: str, rows: pl.DataFrame, *, scale: float = 0.0, **params: object) -> Iterator[Draft]:
    """A finding about kernels that might as well not be there: saved by replay without them."""
    if not rows.height or int(rows["ns"].sum()) < case.limit("severity", "low") * case.total_ns / 2:
        return
    mask = case.task_mask(rows["task"])
    saved, how = case.saved_without_tasks(mask, scale=scale)
    yield Draft(
        rule,
        saved,
        "high",
        how,
        evidence=case.rows_of("kernels", rows.sort("ns", descending=True)["row"]),
        where=case.places(rows["op"], rows["exclusive_ns"]),
        params={"count": round(rows.height / case.count), "kernel": _heaviest(rows), **params},
        duration=case.duration_without(mask, scale=scale) if case.schedule is not None else None,
    )


def _label() -> pl.Expr:
    return pl.coalesce(pl.col("op_type"), pl.col("name")).cast(pl.String).alias("label")


def _heaviest(rows: pl.DataFrame) -> str:
    by = rows.group_by(_label()).agg(pl.col("ns").sum()).sort("ns", "label", descending=[True, False])
    return str(by["label"][0])


def ai_cpu(case: Case) -> Iterator[Draft]:
    kernels = _kernels(case)
    if case.kind != "npu":
        return
    if not kernels["core"].count():
        raise CannotTell("level1")
    rows = kernels.filter(pl.col("core") == "AI_CPU")
    if not rows.height:
        return
    # The same type elsewhere on AI cores shows what it would take there.
    other = kernels.filter(pl.col("core") != "AI_CPU").group_by("op_type").agg(better=pl.col("ns").median())
    likely = rows.join(other, on="op_type", how="left")["better"].fill_null(0).sum()
    scale = min(float(likely) / max(int(rows["ns"].sum()), 1), 1.0)
    kinds = rows["input_dtypes"].drop_nulls().cast(pl.String).str.split(";").list.explode(empty_as_null=True, keep_nulls=True)
    slow = kinds.filter(kinds.str.contains("(?i)int64|double|int16|complex")).value_counts(sort=True) if kinds.len() else None
    dtype = str(slow[slow.columns[0]][0]) if slow is not None and slow.height else ""
    yield from _replace_variant(_without(case, "ai-cpu", rows, scale=scale, dtype=dtype), "dtype" if dtype else "")


def _replace_variant(drafts: Iterator[Draft], variant: str) -> Iterator[Draft]:
    from dataclasses import replace

    return (replace(draft, variant=variant) for draft in drafts)


def low_blocks(case: Case) -> Iterator[Draft]:
    kernels = _kernels(case)
    if case.kind != "npu":
        return  # on GPUs a grid has many times more blocks than there are multiprocessors
    if not kernels["block_num"].count():
        raise CannotTell("level1")
    if case.chip is None or not case.chip.cube_cores:
        raise CannotTell("chip")
    is_vector = pl.col("core").cast(pl.String).str.contains("VECTOR|AIV").fill_null(False)
    cores = pl.when(is_vector).then(case.chip.vector_cores or case.chip.cube_cores).otherwise(case.chip.cube_cores)
    rows = kernels.filter((pl.col("block_num") > 0) & (pl.col("ns") >= case.limit("low-blocks", "kernel_us") * 1000))
    filled = pl.col("block_num") / (cores * (pl.col("block_num") / cores).ceil())
    mixed = pl.col("mix_block_num").fill_null(0)
    other = case.chip.vector_cores or case.chip.cube_cores
    filled = pl.max_horizontal(filled, mixed / (other * (mixed / other).ceil().clip(1, None)))
    rows = rows.with_columns(filled=filled, cores=cores).filter(pl.col("filled") < case.limit("low-blocks", "filled"))
    if rows.height:
        saved = float((rows["exclusive_ns"] * (1 - rows["filled"])).sum())
        yield Draft(
            "low-blocks",
            saved,
            "medium",
            "model",
            bound="upper",
            evidence=case.rows_of(
                "kernels", rows.sort("exclusive_ns", pl.col("name").cast(pl.String), descending=[True, False])["row"]
            ),
            where=case.places(rows["op"], (rows["exclusive_ns"] * (1 - rows["filled"])).cast(pl.Int64)),
            params={
                "kernel": (worst := _heaviest(rows)),
                "cores": int(rows.filter(_label() == worst)["cores"][0]),
                "count": round(rows.height / case.count),
            },
        )


def misaligned_shapes(case: Case) -> Iterator[Draft]:
    kernels = _kernels(case)
    if case.kind != "npu" and case.tables.ops["shapes"].count():
        return  # of a GPU's kernels only the operator is known, which may have passed other shapes on
    if not kernels["input_shapes"].count():
        raise CannotTell("shapes")
    if case.chip is None:
        raise CannotTell("chip")
    rows = kernels.filter(_mask(kernels, MATMUL) & kernels["input_shapes"].is_not_null() & kernels["input_dtypes"].is_not_null())
    groups = rows.group_by("op_type", "name", "input_shapes", "input_dtypes").agg(
        pl.col("exclusive_ns").sum(), pl.col("task"), pl.col("row").first()
    )
    groups = groups.filter(pl.col("exclusive_ns") >= case.limit("misaligned-shapes", "share") * case.total_ns)
    lost, worst, worst_lost = 0.0, "", 0.0
    evidence = []
    for kind, name, shapes, dtypes, spent, row in groups.select(
        pl.col("op_type", "name", "input_shapes", "input_dtypes").cast(pl.String), "exclusive_ns", "row"
    ).iter_rows():
        waste = _padding(case, f"{kind} {name}", shapes, dtypes)
        if waste * spent > 0:
            lost += waste * spent
            evidence.append(row)
            if waste * spent > worst_lost:
                worst, worst_lost = f"{kind or name} {shapes}", waste * spent
    if lost:
        yield Draft(
            "misaligned-shapes",
            lost,
            "medium",
            "model",
            bound="upper",
            evidence=case.rows_of("kernels", evidence),
            params={"kernel": worst},
        )


def _padding(case: Case, name: str, shapes: str, dtypes: str) -> float:
    """Share of the time that goes into padding of the inner axes."""
    first = re.split(r"[;]", dtypes)[0].lower().replace("dt_", "")
    width = BYTES.get(first)
    if width is None:
        return 0.0
    if case.kind == "npu":
        unit = case.limit("misaligned-shapes", "attention_elements") if re.search(ATTENTION, name) else 512 / width
    else:
        unit = case.limit("misaligned-shapes", "gpu_bytes") / width
    used = 1.0
    for shape in shapes.split(";")[:2]:
        sizes = [int(size) for size in re.findall(r"\d+", shape)]
        if len(sizes) >= 2 and sizes[-1] >= unit:
            used = min(used, sizes[-1] / (np.ceil(sizes[-1] / unit) * unit))
    return 1.0 - used


def transposes(case: Case) -> Iterator[Draft]:
    kernels = _kernels(case)
    yield from _without(case, "transpose-overhead", kernels.filter(_mask(kernels, TRANSPOSE)))


def casts(case: Case) -> Iterator[Draft]:
    kernels = _kernels(case)
    yield from _without(case, "cast-overhead", kernels.filter(_mask(kernels, CAST)))


def fp32_matmul(case: Case) -> Iterator[Draft]:
    kernels = _kernels(case)
    if case.kind != "npu" and case.tables.ops["shapes"].count():
        return  # whether TF32 was on is not recorded
    if not kernels["input_dtypes"].count():
        raise CannotTell("shapes")
    products = kernels.filter(_mask(kernels, MATMUL))
    slow = products.filter(
        pl.Series(names.matches(products["input_dtypes"], FLOAT32)) & (products["hf32"].fill_null("NO") != "YES")
    )
    whole = int(products["ns"].sum())
    if slow.height and int(slow["ns"].sum()) > case.limit("fp32-matmul", "share_of_matmul") * whole:
        scale = 1 - case.limit("fp32-matmul", "gain")
        mask = case.task_mask(slow["task"])
        saved, _ = case.saved_without_tasks(mask, scale=scale)
        yield Draft(
            "fp32-matmul",
            saved,
            "medium",
            "model",
            bound="upper",
            evidence=case.rows_of("kernels", slow.sort("ns", descending=True)["row"]),
            where=case.places(slow["op"], slow["exclusive_ns"]),
            params={"count": round(slow.height / case.count), "share": int(slow["ns"].sum()) / whole},
            duration=case.duration_without(mask, scale=scale) if case.schedule is not None else None,
        )


def small_kernels(case: Case) -> Iterator[Draft]:
    kernels = _kernels(case).sort("stream", "start_ns")
    small = pl.col("ns") < case.limit("small-kernels", "kernel_us") * 1000
    border = (small != small.shift(1)) | (pl.col("stream") != pl.col("stream").shift(1))
    rows = kernels.with_columns(small=small, run=border.fill_null(True).cum_sum()).filter("small")
    rows = rows.filter(pl.len().over("run") >= case.limit("small-kernels", "run_length"))
    enough = rows.height / case.count >= case.limit("small-kernels", "per_step")
    if not enough or rows.height <= case.limit("small-kernels", "share_of_kernels") * kernels.height:
        return
    # Between them only what nothing else fills counts: copies and collectives run on.
    pairs = rows.with_columns(following=pl.col("start_ns").shift(-1).over("run")).drop_nulls("following")
    idle = np.minimum(
        spans_of(_launch_gaps(case)).within(pairs["end_ns"].to_numpy(), pairs["following"].to_numpy()),
        int(case.limit("small-kernels", "gap_us") * 1000),
    )
    saved = float(int(rows["exclusive_ns"].sum()) + int(idle.sum())) * case.limit("small-kernels", "gain")
    yield Draft(
        "small-kernels",
        min(saved, case.total_ns),
        "medium",
        "model",
        evidence=case.rows_of("kernels", rows["row"]),
        where=case.places(rows["op"], rows["exclusive_ns"]),
        params={"count": round(rows.height / case.count), "share": rows.height / kernels.height},
        explains=("host-dispatch",),
    )


# What a gap between two kernels may consist of for fusing them to close it.
_OF_LAUNCHING = tuple(f"idle.{layer}" for layer in ("operator", "api", "python", "other", "queue", "launch"))


def _launch_gaps(case: Case) -> pl.DataFrame:
    """Gaps of the device that are mostly the price of issuing one task after another, not waits, data or anything unknown."""
    gaps = case.parts.gaps
    columns = [name for name in _OF_LAUNCHING if name in gaps.columns]
    if not columns:
        return gaps.clear()
    return gaps.filter(2 * pl.sum_horizontal(columns) >= pl.col("end_ns") - pl.col("start_ns"))


def dynamic_shapes(case: Case) -> Iterator[Draft]:
    kernels = _kernels(case)
    if not kernels["input_shapes"].count() and case.tables.ops["shapes"].count():
        # On GPUs shapes are those of the operators.
        kernels = kernels.drop_nulls("op")
        kernels = kernels.with_columns(input_shapes=case.tables.ops["shapes"][kernels["op"]])
    if not kernels["input_shapes"].count():
        raise CannotTell("shapes")
    case.need_steps(int(case.limit("dynamic-shapes", "least_steps")))
    window = case.model.window_of(kernels["start_ns"].to_numpy())
    shapes = kernels.select("input_shapes", window=pl.Series(window)).drop_nulls().unique()
    common = shapes.group_by("input_shapes").len().filter(pl.col("len") == case.count).height
    per_step = shapes.group_by("window").len()["len"]
    differing = 1 - float((common / per_step).mean() or 0.0)  # type: ignore[arg-type]
    if differing > case.limit("dynamic-shapes", "differing"):
        compiled = case.idle_ns("compile")
        yield Draft(
            "dynamic-shapes",
            compiled,
            "high" if compiled else "medium",
            "parts",
            severity="" if compiled >= case.limit("severity", "low") * case.total_ns else "info",
            params={"share": differing},
            explains=("compile",) if compiled else (),
        )


def exposed_copies(case: Case) -> Iterator[Draft]:
    case.need_device()
    whole = case.parts.sum_ns("copy")
    if not whole:
        return
    mask = (case.model.tasks["kind"] == COPY).to_numpy()
    saved, how = case.saved_without_tasks(mask)
    rows = case.model.tasks.with_columns(ns=pl.Series(case.exclusive_by_task)).filter(pl.Series(mask)).sort("ns", descending=True)
    kinds = case.tables.kernels["copy_direction"][rows["row"]].cast(pl.String)
    direction = (
        rows.select("ns")
        .with_columns(kind=kinds)
        .group_by("kind")
        .agg(pl.col("ns").sum())
        .drop_nulls()
        .sort("ns", "kind", descending=[True, False])
    )
    yield Draft(
        "exposed-copy",
        min(saved, whole) if how == "replay" else whole,
        "high",
        how,
        bound="estimate",
        upper_ns=whole,
        evidence=case.rows_of("kernels", rows["row"]),
        where=case.places(rows["op"], rows["ns"]),
        params={"direction": str(direction["kind"][0]) if direction.height else "", "count": round(rows.height / case.count)},
        variant="direction" if direction.height else "",
        duration=case.duration_without(mask) if case.schedule is not None else None,
    )


def optimizer_loop(case: Case) -> Iterator[Draft]:
    kernels = _kernels(case)
    ops = case.tables.ops
    if not ops.height:
        raise CannotTell("ops")
    ranges = ops.filter(pl.col("name").cast(pl.String).str.starts_with("Optimizer.step#"))
    if not ranges.height:
        return  # inference, or an optimizer of the user's own
    launched = kernels.drop_nulls("op")
    at = ops["start_ns"][launched["op"]].to_numpy()
    start, end = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    place = np.searchsorted(start, at, side="right") - 1
    inside = (place >= 0) & (at < end[np.maximum(place, 0)])
    rows = launched.filter(pl.Series(inside))
    per_call = rows.height / max(ranges.height, 1)
    tensors = _parameter_tensors(case, ranges)
    many = tensors and per_call > case.limit("optimizer-loop", "kernels_per_tensor") * tensors
    if per_call > case.limit("optimizer-loop", "kernels") or many:
        mask = case.task_mask(rows["task"])
        scale = 1 - case.limit("optimizer-loop", "gain")
        saved, how = case.saved_without_tasks(mask, scale=scale)
        name = str(ranges["name"][0]).removeprefix("Optimizer.step#").removesuffix(".step")
        yield Draft(
            "optimizer-loop",
            saved,
            "medium",
            how,
            evidence=case.rows_of("kernels", rows["row"]),
            params={"count": round(per_call), "optimizer": name, "api": _fused_optimizer(case, name)},
            explains=("small-kernels", "host-dispatch"),
            duration=case.duration_without(mask, scale=scale) if case.schedule is not None else None,
        )


def _parameter_tensors(case: Case, ranges: pl.DataFrame) -> int:
    """How many tensors an optimizer updates, by the gradients that were accumulated for it; 0 when that is not recorded."""
    name = case.tables.ops["name"].cast(pl.String)
    grads = case.tables.ops.filter(name.str.contains("AccumulateGrad$"))
    inside = grads.filter(pl.col("start_ns").is_between(case.model.start_ns, case.model.end_ns))
    return round(inside.height / max(ranges.height, 1))


def _fused_optimizer(case: Case, name: str) -> str:
    """The fused optimizer that does the same; named only where one exists."""
    for entry in fused_optimizers():
        if re.fullmatch(entry["match"], name):
            return entry["npu"] if case.kind == "npu" else entry["gpu"]
    return "foreach=True"


def recompute(case: Case) -> Iterator[Draft]:
    again = recomputed(case)
    if again.height:
        yield from _without(case, "recompute", again.with_columns(ns=pl.col("exclusive_ns"), op_type=pl.lit(None, pl.String)))


def recomputed(case: Case) -> pl.DataFrame:
    """Kernels of forward operators that backward runs again: same name, shapes and module as before in the step.

    Raises:
        CannotTell: modules or shapes were not recorded.
    """
    kernels = _kernels(case).drop_nulls("op")
    ops = case.tables.ops.with_columns(modules=operator_modules(case.tables, backward=False))
    if not ops["modules"].count() or not ops["shapes"].count():
        raise CannotTell("modules")
    forward = kernels.filter(ops["scope"].fill_null(0)[kernels["op"]] != BACKWARD)
    about = ops.select("name", "shapes", "modules", at="start_ns")[forward["op"]]
    keyed = forward.select("task", "row", "op", "exclusive_ns", "start_ns").hstack(about).drop_nulls(["modules", "shapes"])
    keyed = keyed.with_columns(window=pl.Series(case.model.window_of(keyed["start_ns"].to_numpy())))
    first = keyed.select(pl.col("at").min().over("name", "shapes", "modules", "window")).to_series()
    # A module that is used twice by design runs twice before backward; what is computed again comes after backward began.
    backward = ops.filter((pl.col("scope") == BACKWARD) | (pl.col("fwd_thread").fill_null(0) != 0))["start_ns"].sort().to_numpy()
    passed = np.searchsorted(backward, keyed["at"].to_numpy()) - np.searchsorted(backward, first.to_numpy())
    return keyed.filter(pl.Series(passed > 0))

# SPDX-License-Identifier: Apache-2.0
"""Single rules on captures made for them: places, chips, groups, clocks, and switches that a capture had."""

from __future__ import annotations

import polars as pl
import pytest
from verdict_simulator import Loop, Machine

from stepscope.analysis.roofline import tensor_bytes
from stepscope.analysis.source_lines import operator_places, user_frame
from stepscope.tables import ALL_TABLES, Tables
from stepscope.verdict import verdict

CHIP = {"0": {"id": 0, "ai_core_num": 20, "aiv_num": 40, "aic_frequency": 1650}}


def of_chip(tables: Tables) -> Tables:
    facts = tables.facts.replace(device_names={"0": "Ascend910B"}, device_properties=CHIP)
    return tables.replace(meta=facts.table())


def with_rows(tables: Tables, table: str, rows: list[dict]) -> Tables:
    return tables.replace(**{table: ALL_TABLES[table].conform(pl.DataFrame(rows, infer_schema_length=None))})


def named(tables: Tables | list[Tables], rule: str):
    return next((one for one in verdict(tables).findings if one.rule == rule), None)


def lacks(tables: Tables) -> dict[str, str]:
    return {one.lack: one.text() for one in verdict(tables).ranks[0].cannot_tell}


# Places


def test_python_between_operators_is_named_by_its_line():
    def compute(machine: Machine, layer: int) -> None:
        start, end = machine.spend(2000)
        machine.add("python_calls", start, end, pid=1, tid=1, name="train.py(88): metrics", kind="function")
        inside = {"pid": 1, "tid": 1, "name": "/usr/lib/python3.12/json/encoder.py(183): encode", "kind": "function"}
        machine.add("python_calls", start + 100, end - 100, **inside)

    found = named(Loop(seed=1, at_layer=compute).run().tables(), "host-python")
    assert found.where[0].stack == "train.py(88): metrics"  # time in the library counts for the line that called it
    assert "train.py(88): metrics" in found.title
    assert found.confidence == "medium"


def test_operators_have_the_line_and_the_module_around_them():
    machine = Machine()
    machine.operator("MatMulV2", 100, 10)
    line = {"pid": 1, "tid": 1, "kind": "function"}
    machine.add("python_calls", 0, 1000, name="train.py(5): step", **line)
    machine.add("python_calls", 0, 900, name="nn.Module: Net_0", pid=1, tid=1, kind="module")
    machine.add("python_calls", 0, 800, name="torch/nn/modules/linear.py(114): forward", **line)
    places = operator_places(machine.tables()).row(0)
    assert places == ("Net_0", "train.py(5): step")


@pytest.mark.parametrize(
    ("stack", "frame"),
    [
        pytest.param(
            "/x/site-packages/torch/_ops.py(6): call;/me/train.py(7): loss;main.py(1): go", "/me/train.py(7): loss", id="user"
        ),
        pytest.param("torch/_ops.py(6): call", "torch/_ops.py(6): call", id="library-only"),
        pytest.param("", "", id="empty"),
    ],
)
def test_the_user_frame_of_a_stack(stack, frame):
    assert user_frame(stack) == frame


def test_evidence_links_to_the_timeline():
    found = verdict(Loop(seed=2, host=60.0, at_layer=lambda machine, layer: machine.wait()).run().tables()).as_dict()
    (link,) = {one["link"] for one in found["findings"][0]["evidence"]}
    assert link.startswith("#/trace?rank=0&from=17000")
    assert "&select=api_calls:" in link


# Chips


def test_blocks_are_compared_with_the_cores_that_the_capture_names():
    def half_filled(machine: Machine, layer: int) -> None:
        machine.operator("Mul", 12.0, 300.0, core="AI_VECTOR_CORE", block_num=21)

    tables = Loop(seed=3, at_layer=half_filled).run().tables()
    found = named(of_chip(tables), "low-blocks")
    assert (found.params["kernel"], found.params["cores"]) == ("Mul", 40)
    # 21 blocks on 40 vector cores leave 19 of them without work
    assert found.saved_ms == pytest.approx(16 * 0.3 * 19 / 40, rel=0.05)
    assert named(tables, "low-blocks") is None  # an unknown chip


def flops_of(tables: Tables, flops: float) -> Tables:
    is_product = pl.col("name").cast(pl.String) == "aten::MatMulV2"
    ops = tables.ops.with_columns(
        flops=pl.when(is_product).then(flops).cast(pl.Int64), dtypes=pl.lit("half").cast(pl.Categorical())
    )
    kernels = tables.kernels.with_columns(op=pl.int_range(pl.len(), dtype=pl.Int64))
    return tables.replace(ops=ops, kernels=kernels)


def test_flops_utilisation_counts_what_is_computed_again_beside_the_model():
    tables = of_chip(Loop(seed=4, steps=4).run().tables())
    own = tables.ops.filter(pl.col("scope") == 0)
    product = pl.col("name").cast(pl.String) == "aten::MatMulV2"
    # Of the 32 products of a step the second half has the modules and shapes of the first, and backward began behind the 15th.
    turn = (pl.col("name").cast(pl.String).cum_count().over("name") - 1) % (pl.when(product).then(32).otherwise(16))
    begins = (pl.col("name").cast(pl.String) == "aten::LayerNorm") & (turn == 7)
    module = pl.when(product).then(pl.format("m{}", turn % 16))
    marks = {"modules": module.cast(pl.Categorical()), "shapes": pl.lit("64,256").cast(pl.Categorical())}
    ops = own.with_columns(**marks, scope=pl.when(begins).then(1).otherwise("scope").cast(own.schema["scope"]))
    found = named(flops_of(tables.replace(ops=ops), 1e9), "mfu")
    peak = 20 * 8192 * 1650e6
    step_s = verdict(tables).ranks[0].partition["total"] / 1e9
    assert found.params["hfu"] == pytest.approx(32e9 / step_s / peak, rel=1e-6)
    assert found.params["mfu"] == pytest.approx(found.params["hfu"] * 17 / 32, rel=1e-6)
    assert named(flops_of(tables.replace(ops=ops), 1e9), "recompute").params["count"] == 15
    twice_by_design = own.with_columns(**marks)
    assert named(flops_of(tables.replace(ops=twice_by_design), 1e9), "recompute") is None
    unknown = named(flops_of(tables.replace(ops=own), 1e9), "mfu")
    assert unknown.variant == "hardware"


def test_bytes_of_tensors():
    assert tensor_bytes('"2,3;4"', "FLOAT;INT64") == 2 * 3 * 4 + 4 * 8
    assert tensor_bytes("2,3", "STRANGE") == 0
    assert tensor_bytes(None, None) == 0


@pytest.mark.parametrize(
    ("core", "metrics", "pipe"),
    [
        pytest.param("AI_CORE", {"aic_mac_ratio": 0.85, "aic_mte2_ratio": 0.9}, "aic_mac", id="cube"),
        pytest.param("AI_CORE", {"aic_mac_ratio": 0.75, "aic_mte2_ratio": 0.9}, None, id="cube-below-both"),
        pytest.param("AI_VECTOR_CORE", {"aiv_vec_ratio": 0.72, "aiv_mte2_ratio": 0.1}, "aiv_vec", id="vector"),
        pytest.param("AI_VECTOR_CORE", {"aiv_vec_ratio": 0.5, "aiv_mte2_ratio": 0.45}, "aiv_vec", id="vector-together"),
    ],
)
def test_what_bounds_a_kernel_depends_on_its_kind(core, metrics, pipe):
    tables = Loop(seed=5, steps=3).run().tables()
    kernels = tables.kernels.with_columns(core=pl.lit(core).cast(pl.Categorical()), name=pl.lit("one").cast(pl.Categorical()))
    rows = [{"kernel": row, **metrics} for row in range(kernels.height)]
    found = named(with_rows(tables.replace(kernels=kernels), "kernel_metrics", rows), "bound")
    assert (found and found.params["pipe"]) == pipe


# Communication


def with_a_late_rank(metadata: dict) -> Tables:
    tables = Loop(seed=6, communication=800.0, blocking=True).run().tables()
    tables = tables.replace(meta=tables.facts.replace(metadata=metadata).table())
    rows = [
        {
            "device": 0,
            "start_ns": start,
            "end_ns": end - 50_000,
            "collective": row,
            "task_type": "Notify_Wait",
            "dst_rank": 1,
        }
        for row, (start, end) in enumerate(tables.collectives.select("start_ns", "end_ns").iter_rows())
    ]
    return with_rows(tables, "transfers", rows)


def test_a_rank_is_global_where_the_members_are_known():
    members = {"parallel_group_info": {"g": {"group_name": "tp", "global_ranks": [2, 6]}}}
    found = named(with_a_late_rank(members), "peer-wait")
    assert found.params["late_rank"] == 6
    assert found.title == "Communication waits for rank 6"


@pytest.mark.parametrize("metadata", [{}, {"parallel_group_info": {"g": {"global_ranks": [3]}}}, {"parallel_group_info": ["odd"]}])
def test_else_it_is_a_rank_of_its_group(metadata):
    found = named(with_a_late_rank(metadata), "peer-wait")
    assert found.params["late_rank"] == 1
    assert "rank 1 of its group" in found.title
    assert "of the group" in found.next


def test_a_slow_link_is_found_in_single_transfers():
    tables = Loop(seed=7, communication=800.0, blocking=True).run().tables()
    start = int(tables.steps["start_ns"][1])
    rows = [
        {
            "device": 0,
            "start_ns": start + 1000 * link,
            "end_ns": start + 1000 * link + (9_000_000 if link == 3 else 1_000_000),
            "src_rank": 0,
            "dst_rank": link,
            "transport": "SDMA",
            "link": "HCCS",
            "bytes": 20_000_000,
        }
        for link in range(1, 6)
    ]
    found = named(with_rows(tables, "transfers", rows), "slow-link")
    assert (found.params["src"], found.params["dst"]) == (0, 3)
    assert found.params["gbs"] == pytest.approx(20 / 9)


def test_clocks_that_are_apart_are_said():
    tables = Loop(seed=8, communication=200.0).run().tables()
    shifted = tables.collectives.with_columns(pl.col("start_ns", "end_ns") + 7_000_000)
    other = tables.replace(collectives=shifted, meta=tables.facts.replace(rank=1).table())
    first, second = verdict([tables, other]).ranks
    assert "clocks" not in {one.lack for one in first.cannot_tell}
    assert {one.lack: one.params for one in second.cannot_tell}["clocks"] == {"ms": 7.0}


# What a capture cannot tell


def test_a_switch_that_was_on_is_not_advised():
    tables = Loop(seed=9, steps=4).run().tables()
    assert "set l2_cache" in lacks(tables)["l2"]
    on = tables.replace(meta=tables.facts.replace(l2_cache=True).table())
    assert "l2" not in lacks(on)
    assert lacks(on)["empty"].endswith("recorded, but this capture has none")
    rates = with_rows(tables, "cache_rates", [{"kind": "l2", "device": 0, "op_name": "Add", "other_rate": 0.2}])
    assert "l2" not in lacks(rates)
    assert not any("record at Level1" in text for text in lacks(tables).values())  # the capture is one of Level1


def test_on_a_gpu_no_switch_of_an_npu_is_advised():
    tables = Loop(seed=10, steps=4).run().tables()
    gpu = tables.replace(
        meta=tables.facts.replace(device_kind="cuda", level="").table(),
        kernels=tables.kernels.with_columns(block_num=pl.lit(None, pl.Int64), core=pl.lit(None, pl.Categorical())),
    )
    assert not [text for text in lacks(gpu).values() if "Level" in text or "l2_cache" in text or "aic_metrics" in text]


def test_one_step_says_nothing_about_steps():
    tables = Loop(seed=11, steps=1, at_step=lambda machine, step: machine.spend(30_000) and None).run().tables()
    found = verdict(tables)
    assert "unsteady" in {one.lack for one in found.ranks[0].cannot_tell}
    assert not {"slow-steps", "variance", "drift", "warm-up", "memory-leak"} & {one.rule for one in found.findings}


def test_first_steps_are_warm_up_not_outliers():
    tables = Loop(seed=12, at_step=lambda machine, step: machine.spend(80_000) and None if step == 0 else None).run().tables()
    rules = {one.rule for one in verdict(tables).findings}
    assert "warm-up" in rules
    assert "slow-steps" not in rules


def test_without_a_device_no_cause_is_invented():
    tables = Loop(seed=13, at_step=lambda machine, step: machine.spend(50_000) and None).run().tables()
    found = verdict(tables.replace(kernels=ALL_TABLES["kernels"].empty(), collectives=ALL_TABLES["collectives"].empty()))
    assert "device" in {one.lack for one in found.ranks[0].cannot_tell}
    assert not [one.rule for one in found.findings if one.family in ("device", "communication") or one.severity == "high"]


def test_settings_of_the_environment_that_cost_time_are_named():
    tables = Loop(seed=14, steps=3).run().tables()
    variables = {"ASCEND_GLOBAL_LOG_LEVEL": "1", "PYTORCH_NPU_ALLOC_CONF": "max_split_size_mb:32,expandable_segments:False"}
    found = named(tables.replace(meta=tables.facts.replace(metadata={"ENV_VARIABLES": variables}).table()), "environment")
    assert found.params["settings"].startswith("ASCEND_GLOBAL_LOG_LEVEL=1, PYTORCH_NPU_ALLOC_CONF=")
    quiet = tables.replace(meta=tables.facts.replace(metadata={"ENV_VARIABLES": dict.fromkeys(variables, "")}).table())
    assert named(quiet, "environment") is None


def test_an_optimizer_that_loops_is_given_the_fused_one():
    def loop(machine: Machine, step: int) -> None:
        began = machine.now
        for _ in range(250):
            machine.operator("Mul", 12.0, 9.0)
        machine.add("ops", began, machine.now, pid=1, tid=1, name="Optimizer.step#AdamW.step", scope=7)

    tables = Loop(seed=15, steps=4, at_end=loop).run().tables()
    ops = tables.ops.sort("start_ns", "end_ns", descending=[False, True]).with_row_index("row")
    own = ops.filter(pl.col("scope") == 0).sort("start_ns")["row"].cast(pl.Int64)
    tables = tables.replace(ops=ops.drop("row"), kernels=tables.kernels.sort("launch_ns").with_columns(op=own))
    assert "torch_npu.optim.NpuFusedAdamW" in named(tables, "optimizer-loop").next


def test_gaps_between_small_kernels_count_only_where_the_device_idles():
    def small(machine: Machine, layer: int) -> None:
        for _ in range(40):
            machine.operator("Mul", 14.0, 3.0)

    tables = Loop(seed=16, steps=4, host=14.0, at_layer=small).run().tables()
    alone = named(tables, "small-kernels")
    copy = {"device": 0, "stream": 5, "kind": "memcpy", "name": "MEMCPY_ASYNC"}
    whole = {"start_ns": int(tables.steps["start_ns"].min()), "end_ns": int(tables.kernels["end_ns"].max())}
    beside = pl.concat([tables.kernels, ALL_TABLES["kernels"].conform(pl.DataFrame([{**copy, **whole}]))])
    found = named(tables.replace(kernels=beside), "small-kernels")
    assert found.saved_ns == pytest.approx(0.8 * 640 * 3000, rel=0.02)  # the copy fills all the gaps
    assert alone.saved_ns > 1.3 * found.saved_ns


def test_names_of_cpp_kernels_are_short():
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::Mul<float> >(int, at::native::Mul<float>)"

    def cast(machine: Machine, layer: int) -> None:
        machine.operator(name, 12.0, 90.0)

    tables = Loop(seed=17, steps=4, at_layer=cast).run().tables()
    gpu = tables.replace(kernels=tables.kernels.with_columns(op_type=pl.lit("Cast").cast(pl.Categorical())))
    assert named(gpu, "cast-overhead") is not None
    found = verdict(tables.replace(kernels=tables.kernels.with_columns(input_dtypes=pl.lit("FLOAT").cast(pl.Categorical()))))
    assert all("void " not in str(one.params.get("kernel", "")) for one in found.findings)


def test_where_nothing_communicates_no_detail_of_it_is_missed():
    said = lacks(Loop(seed=18, steps=6).run().tables())
    assert "communication" in said
    assert not {"packets", "transfers", "links", "collective-bytes", "few-steps"} & set(said)


def test_issuing_late_after_a_wait_is_part_of_the_wait():
    bad = Loop(seed=19, host=60.0, at_layer=lambda machine, layer: machine.wait()).run().tables()
    waits = named(bad, "sync-stall")
    assert "host-dispatch" in waits.explains
    assert named(bad, "host-dispatch") is None
    # A host that is late without any wait stays a finding beside it.
    slow = Loop(seed=19, host=200.0, at_layer=lambda machine, layer: machine.wait()).run().tables()
    assert named(slow, "host-dispatch") is not None

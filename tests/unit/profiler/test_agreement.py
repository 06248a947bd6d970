"""The training of a small transformer, seen by our profiler and by torch.profiler, gives the same tables.

Ours goes capture -> FRAMEWORK reader -> tables, torch's goes JSON -> Kineto reader -> tables; both are linked.
"""

from __future__ import annotations

import os
import threading

import polars as pl
import pytest

import stepscope
from stepscope import profiler
from stepscope.analysis.flows import forward_backward_links
from stepscope.analysis.link.call_stacks import stacks
from stepscope.capture import gc_paused

torch = pytest.importorskip("torch", reason="collecting needs torch")

from observed import Training, the_observer  # noqa: E402 - after the skip

SWITCHES = {"record_shapes": True, "profile_memory": True, "with_stack": True, "with_modules": True, "with_flops": True}
STEPS = 2
# torch.profiler copies number and thread of an autograd node to the engine's range around it; the raw files do not.
ENGINE = "autograd::engine::evaluate_function: "


def train(prof, training):
    for _ in range(STEPS + 1):
        one_step(training)
        prof.step()


def one_step(training):
    with torch.profiler.record_function("the step"):
        training.step()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Tables of our capture and of torch's trace."""
    the_observer()
    folder = tmp_path_factory.mktemp("agreement")
    training, trace = Training(), str(folder / "trace.json")
    plan = {"wait": 0, "warmup": 1, "active": STEPS, "repeat": 1}
    # A garbage collection in one of the two would be calls of whoever listens to it.
    with pytest.MonkeyPatch.context() as patch, gc_paused():
        patch.setenv("STEPSCOPE_COLLECTOR", "native")
        patch.setenv("STEPSCOPE_MIN_FREE_BYTES", "0")
        patch.chdir(folder)
        for _ in range(2):  # torch counts a block's end only if it saw its beginning
            theirs = torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU],
                schedule=torch.profiler.schedule(**plan),
                on_trace_ready=lambda prof: prof.export_chrome_trace(trace),
                **SWITCHES,
            )
            with theirs:
                train(theirs, training)
        with profiler.profile(schedule=profiler.schedule(**plan), on_trace_ready=lambda prof: None, **SWITCHES) as ours:
            train(ours, training)
        return stepscope.open(ours.prof_if.prof_path).tables, stepscope.open(trace).tables


def from_zero(numbers: pl.Series) -> list[int | None]:
    return (numbers - numbers.min()).to_list()


def texts(column: pl.Series) -> list[str | None]:
    return column.cast(pl.String).to_list()


def without_addresses(names: pl.Series) -> pl.Series:
    return names.cast(pl.String).str.replace_all(r"0x[0-9a-f]+", "0x")


def test_operators_their_counts_and_order_on_each_thread(both):
    ours, theirs = both
    assert ours.ops.height > 500
    assert set(ours.ops["tid"]) == set(theirs.ops["tid"]) == {threading.get_native_id()}
    assert set(ours.ops["pid"]) == set(theirs.ops["pid"]) == {os.getpid()}
    assert texts(ours.ops["name"]) == texts(theirs.ops["name"])
    assert ours.ops["parent"].to_list() == theirs.ops["parent"].to_list()
    assert ours.steps["step"].to_list() == theirs.steps["step"].to_list() == [1, 2]


def test_durations_make_sense(both):
    for tables in both:
        ops = tables.ops.with_columns(length=pl.col("end_ns") - pl.col("start_ns"))
        assert (ops["length"] >= 0).all()
        around = ops.drop_nulls("parent")
        outer = ops[around["parent"].to_list()]
        assert (outer["start_ns"] <= around["start_ns"]).all()
        assert (outer["end_ns"] >= around["end_ns"]).all()
    # One unit, of the same work: a pause of the machine lengthens a step, and not half of the operators a hundred times.
    middle = [(tables.ops["end_ns"] - tables.ops["start_ns"]).median() for tables in both]
    assert 0 < max(middle) < 100 * min(middle)


def test_shapes_and_types(both):
    ours, theirs = both
    assert texts(ours.ops["shapes"]) == texts(theirs.ops["shapes"])
    assert ours.ops["shapes"].drop_nulls().n_unique() > 20
    # Ours writes None where torch's trace leaves the place empty.
    words = ours.ops["dtypes"].cast(pl.String).str.replace_all(r"(^|;)None(?:$|(;))", "${1}${2}").str.replace_all("None", "")
    assert words.fill_null("").to_list() == theirs.ops["dtypes"].cast(pl.String).fill_null("").to_list()


def test_sequence_numbers_and_forward_threads(both):
    ours, theirs = (tables.ops.filter(~pl.col("name").cast(pl.String).str.starts_with(ENGINE)) for tables in both)
    assert from_zero(ours["seq"]) == from_zero(theirs["seq"])
    # torch also leaves the thread out where there is no number.
    numbered = ours["seq"].is_not_null()
    assert ours.filter(numbered)["fwd_thread"].to_list() == theirs.filter(numbered)["fwd_thread"].to_list()


def test_forward_and_backward_pairs(both):
    pairs = []
    for tables in both:
        names = tables.ops["name"].cast(pl.String)
        nodes = tables.ops.with_columns(seq=pl.when(~names.str.starts_with(ENGINE)).then("seq"))
        linked = forward_backward_links(nodes)
        pairs.append(linked.select("forward", "backward").rows())
    assert pairs[0] == pairs[1]
    ours, theirs = both
    assert len(pairs[0]) == theirs.flows.filter(pl.col("kind") == "fwdbwd").height
    forward, backward = pairs[0][0]
    assert ours.ops["fwd_thread"][forward] is None
    assert ours.ops["fwd_thread"][backward] == 1


def test_allocations(both):
    seen = []
    for tables in both:
        held = tables.allocations.filter(pl.col("device_type") == "cpu")
        seen.append(held.select(pl.col("name").cast(pl.String), "op", "bytes", released=pl.col("release_ns").is_not_null()).rows())
    assert len(seen[0]) > 100
    assert seen[0] == seen[1]


def test_flops(both):
    ours, _ = both  # torch's JSON has none; test_observer compares the numbers with its events
    products = ours.ops.filter(pl.col("name") == "aten::addmm", pl.col("shapes") == "32;8,16;16,32;;")
    assert set(products["flops"]) == {2 * 8 * 16 * 32}


def test_modules(both):
    ours, theirs = (tables.python_calls.filter(pl.col("kind") == "module") for tables in both)
    assert texts(ours["name"]) == texts(theirs["name"])
    assert "nn.Module: TransformerEncoderLayer_0" in texts(ours["name"])


def test_stacks(both):
    seen = []
    for tables in both:
        frames = without_addresses(stacks(tables.ops, tables.python_calls)).str.split(";")
        # What stands outside of the step is the profiler's own business.
        inside = (
            frames.to_frame("frames")
            .with_row_index("row")
            .explode("frames")
            .with_columns(outer=pl.col("frames").str.contains(r"test_agreement\.py\(\d+\): one_step"))
        )
        kept = inside.filter(pl.col("outer").cast(pl.Int8).cum_sum().over("row") - pl.col("outer").cast(pl.Int8) == 0)
        with_step = kept.filter(pl.col("outer").any().over("row"))
        seen.append(with_step.group_by("row", maintain_order=True).agg(pl.col("frames").str.join(";")))
    assert seen[0].height > 500
    assert seen[0].rows() == seen[1].rows()
    assert any("torch/optim/" in frames for frames in seen[0]["frames"])
    assert any("nn.Module: Linear_0" in frames for frames in seen[0]["frames"])


def test_python_calls_inside_the_steps(both):
    seen = []
    for tables in both:
        calls = tables.python_calls.sort("start_ns", pl.col("end_ns"), descending=[False, True])
        ranges = tables.ops.filter(pl.col("name") == "the step").select("tid", "start_ns", "end_ns").rows()
        # Of the thread that trains: the process may have others that work for other tests.
        inside = [
            calls.filter(pl.col("tid") == tid, pl.col("start_ns") > start, pl.col("end_ns") < end) for tid, start, end in ranges
        ]
        seen.append(without_addresses(pl.concat(inside)["name"]).to_list())
    assert len(seen[0]) > 200
    assert seen[0] == seen[1]

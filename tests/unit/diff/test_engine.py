# SPDX-License-Identifier: Apache-2.0
"""Rows of a diff: exact sums, calls and price, units of noise, comparability."""

from __future__ import annotations

from fractions import Fraction

import polars as pl
import pytest
from verdict_simulator import Loop

import stepscope
from stepscope.diff.engine import diff
from stepscope.diff.ledger import ledger
from stepscope.tables import ALL_TABLES, Facts, Tables


def made(facts: dict | None = None, **rows) -> Tables:
    frames = {name: ALL_TABLES[name].conform(pl.DataFrame(values, infer_schema_length=None)) for name, values in rows.items()}
    return Tables({**frames, "meta": Facts(**{"device_kind": "npu", "rank": 0, **(facts or {})}).table()})


def kernel(name: str, start: int, end: int, **columns) -> dict:
    return {"device": 0, "stream": 1, "kind": "compute", "name": name, "start_ns": start, "end_ns": end, **columns}


def capture(*kernels: dict, steps: int = 1, length: int = 1000, **facts) -> Tables:
    """Kernels, repeated in each of some steps."""
    repeated = [
        {**one, "start_ns": one["start_ns"] + length * step, "end_ns": one["end_ns"] + length * step}
        for step in range(steps)
        for one in kernels
    ]
    marks = [{"step": step, "start_ns": length * step, "end_ns": length * (step + 1), "inflated": False} for step in range(steps)]
    return made(facts, kernels=repeated, steps=marks)


def row(found, name):
    return next(one for one in found.rows if name in (one.kernel, one.part))


def test_calls_and_price():
    base = capture(kernel("a", 0, 100), kernel("a", 100, 200), kernel("b", 300, 400))
    new = capture(kernel("a", 0, 150), kernel("a", 150, 300), kernel("a", 300, 450))
    found = diff([base], [new])
    a, b = row(found, "a"), row(found, "b")
    # One call more at 100 each, then three calls that cost 50 more each.
    assert (a.calls_ns, a.price_ns, a.delta_ns) == (100, 150, 250)
    assert (b.calls_ns, b.price_ns, b.match) == (-100, 0, "base")
    assert found.delta_ns == 0 == sum(one.delta_ns for one in found.rows)


def test_fractions_are_exact():
    base, new = capture(kernel("a", 0, 100), steps=3), capture(kernel("a", 0, 101), steps=7)
    new = new.replace(kernels=new.kernels.head(5))
    found = diff([base], [new])
    assert row(found, "a").new_ns == Fraction(505, 7)
    assert sum(one.delta_ns for one in found.rows) == found.delta_ns


def test_hidden_time_costs_nothing():
    """A copy behind a kernel takes no time of the step; once the kernel is gone it does."""
    copy = {**kernel("copy", 0, 100, kind="memcpy"), "stream": 2}
    found = diff([capture(kernel("a", 0, 100), copy)], [capture(copy)])
    assert row(found, "copy").delta_ns == 100
    assert (row(found, "copy").calls_ns, row(found, "copy").price_ns) == (0, 100)


def test_warm_up_is_left_out():
    steps = [
        {"step": n, "start_ns": start, "end_ns": start + 500, "inflated": False} for n, start in enumerate((0, 5000, 5500, 6000))
    ]
    one = made(kernels=[kernel("a", step["start_ns"], step["start_ns"] + 50) for step in steps], steps=steps)
    entered = ledger(one)
    assert (entered.warm_up, entered.count, entered.totals.tolist()) == (1, 3, [500, 500, 500])
    found = diff([one], [one])
    assert found.warm_up == (1, 1)
    assert "warm-up" in " ".join(found.as_dict()["notes"]["en"])


def test_host_time_by_operator():
    """Without a device operators are the work; backward runs on a thread of its own while the main thread waits."""

    def op(name, start, end, tid=1):
        return {"pid": 1, "tid": tid, "name": name, "start_ns": start, "end_ns": end, "scope": 0}

    def one(backward):
        steps = [{"step": 0, "start_ns": 0, "end_ns": 1000, "inflated": False}]
        ops = [op("ProfilerStep#0", 0, 1000), op("linear", 100, 300), op("addmm", 150, 250), op("mm_back", 400, 400 + backward, 2)]
        return made({"device_kind": "cpu"}, ops=ops, steps=steps)

    found = diff([one(200)], [one(300)], by="op")
    assert sum(each.delta_ns for each in found.rows) == found.delta_ns == 0
    times = {each.op: (each.base_ns, each.new_ns) for each in found.rows if each.op}
    assert times == {"linear": (100, 100), "addmm": (100, 100), "mm_back": (200, 300)}


def test_operator_of_a_kernel_without_a_link():
    one = Loop(steps=3).run().tables()
    assert {each.op for each in diff([one], [one]).rows if each.part == "computing"} >= {"aten::MatMulV2", "aten::Add"}


def test_ranks_are_one_run_and_the_same_rank_again_is_another():
    first = capture(kernel("a", 0, 100), steps=4)
    second = capture(kernel("a", 0, 100), steps=4, rank=1)
    found = diff([first, second], [first, second, first, second])
    assert (found.runs, found.steps, found.samples) == ((1, 2), (8, 16), "steps")
    assert diff([first] * 3, [second] * 3).samples == "runs"
    assert "One run a side" not in " ".join(diff([first] * 3, [second] * 3).as_dict()["notes"]["en"])


def test_runs_are_the_unit_of_noise():
    """Steps of a run share their machine: runs that differ among themselves hide a difference that steps would show."""
    base = [Loop(seed=seed, kernel=100.0 + 10 * seed).run().tables() for seed in range(3)]
    new = [Loop(seed=9 + seed, kernel=105.0 + 10 * seed).run().tables() for seed in range(3)]
    assert diff(base[:1], new[:1]).status == "changed"
    assert diff(base, new).status == "within noise"


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        pytest.param({"device_kind": "cuda"}, "device", id="device"),
        pytest.param({"device_names": {"0": "Ascend910A"}}, "device", id="chip"),
        pytest.param({"level": "Level0"}, "level", id="level"),
        pytest.param({"with_stack": True}, "switches", id="switches"),
        pytest.param({"modelled": ("time",)}, "simulated", id="simulated"),
        pytest.param({"metadata": {"world_size": 16}}, "world_size", id="world size"),
    ],
)
def test_what_cannot_be_compared_is_said(changes, name):
    facts = {"level": "Level1", "device_names": {"0": "Ascend910B"}, "metadata": {"world_size": 8}}
    one = kernel("a", 0, 100, op_type="MatMul", input_shapes="64,64", input_dtypes="FLOAT16")
    base, new = capture(one, steps=4, **facts), capture(one, steps=4, **{**facts, **changes})
    assert diff([base], [base]).comparable
    found = diff([base], [new])
    assert [check.name for check in found.checks if check.blocks] == [name]
    assert found.as_dict()["comparable"]["same"] is False


def shaped(*, batch: int = 64, dtype: str = "FLOAT16", others: int = 0) -> Tables:
    names = ("MatMul", "Add", "Gelu", "Softmax", "Cast", "Mul")
    rows = [
        kernel(name, 100 * n, 100 * n + 90, op_type=name, input_shapes=f"{batch if n >= others else 7},8", input_dtypes=dtype)
        for n, name in enumerate(names)
    ]
    return capture(*rows, steps=4)


def test_shapes_and_types():
    assert not diff([shaped()], [shaped(batch=128)]).comparable
    assert not diff([shaped()], [shaped(dtype="FLOAT")]).comparable
    # A change of code that touches one operator of six is still the same work.
    assert diff([shaped()], [shaped(others=1)]).comparable


def test_changing_shapes_are_the_same_work():
    """Shapes drawn anew in every step differ between equal runs as much as between steps of one run."""
    base, new = (Loop(seed=seed, changing=True).run().tables() for seed in (1, 2))
    assert diff([base], [new]).comparable


def test_work_that_a_simulated_device_has_not_begun_is_never_a_change():
    # Launched at 0, begun later: idle.queued.
    def one(start):
        return capture(kernel("a", start, 400_000, launch_ns=0, launch_tid=1), steps=12, length=500_000, modelled=("time",))

    found = diff([one(100_000)], [one(300_000)])
    assert all(not each.real for each in found.rows if each.part == "idle.queued")


@pytest.mark.parametrize(("modelled", "said"), [(("time",), "within noise"), ((), "changed")], ids=["simulated", "real"])
def test_a_step_that_only_waits_for_the_processors_of_a_simulation_has_not_changed(modelled, said):
    """Two equal runs beside other jobs: the device begins later, and nothing else differs."""

    def one(start, length):
        return capture(kernel("a", start, start + 400_000, launch_ns=0, launch_tid=1), steps=12, length=length, modelled=modelled)

    found = diff([one(100_000, 500_000)], [one(300_000, 700_000)])
    assert found.delta_ns > 0
    assert found.status == said


def test_a_step_with_more_work_on_a_simulated_device_has_changed():
    def one(length):
        return capture(
            kernel("a", 100_000, 100_000 + length, launch_ns=0, launch_tid=1), steps=12, length=600_000, modelled=("time",)
        )

    assert diff([one(300_000)], [one(450_000)]).rows[0].real


def test_an_empty_capture():
    found = diff([made()], [made()])
    assert (found.rows, found.delta_ns, found.status) == ((), 0, "cannot tell")
    assert found.as_dict()["answer"]["en"]


def test_in_python():
    base, new = Loop(seed=1).run().tables(), Loop(seed=2, slower={"Add": 1.5}).run().tables()
    found = stepscope.diff(base, new)
    assert (found.rows[0].op, found.rows[0].kernel, found.rows[0].real) == ("aten::Add", "Add", True)
    assert found.at("op").rows[0].op == "aten::Add"
    assert found.at("part").rows[0].part == "computing"
    assert sum(one.delta_ns for one in found.at("module").rows) == found.delta_ns
    with pytest.raises(ValueError, match="not one of part, module, op, kernel"):
        stepscope.diff(base, new, by="layer")
    assert "<div" in found._repr_html_()
    assert "| kernel |" in found._repr_markdown_()

# SPDX-License-Identifier: Apache-2.0
"""The suite on the simulated NPU: what is thrown away, and that its runs are read. Its figures need a quiet machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from verdict_simulator import Loop

sys.path.insert(0, str(Path(__file__).parent))

from npu_cases import NpuCase, clean, injected
from npu_process import reason_without_device
from npu_proof import BUSY, NpuProof, _count, _count_clean, answers, queued_share, step_ns

from stepscope.verdict import verdict


def test_there_are_enough_cases_with_names_of_their_own():
    problems, calm = list(injected()), list(clean())
    assert len(problems) >= 60
    assert len(calm) >= 20
    assert len({case.name for case in (*problems, *calm)}) == len(problems) + len(calm)
    models = [case.train for case in calm]
    assert all(case.train in models for case in problems)  # each has runs to compare with


def test_time_with_work_issued_is_the_load_of_the_machine():
    import polars as pl

    tables = Loop(seed=1, steps=4).run().tables()
    calm = verdict(tables)
    assert queued_share(calm) < BUSY
    late = tables.kernels.with_columns(pl.col("start_ns", "end_ns") + pl.int_range(pl.len()) * 400_000)
    assert queued_share(verdict(tables.replace(kernels=late))) > BUSY
    assert step_ns(calm) == pytest.approx(calm.ranks[0].partition["total"], rel=0.05)


def test_what_counts():
    slow = Loop(seed=2, steps=6, at_step=lambda machine, step: machine.spend(20_000) and None).run().tables()
    answered, proof = verdict(slow), NpuProof()
    calm = verdict(Loop(seed=2, steps=6).run().tables())
    case = NpuCase("python-0", frozenset({"host-python"}), problem={"kind": "python"})
    _count(proof, case, answered, [step_ns(calm)])
    assert proof.named == ["python-0"]
    assert proof.right == 1
    assert proof.ratios[0] == pytest.approx(1, abs=0.2)
    _count(proof, NpuCase("x", frozenset({"gc-pause"})), answered, [step_ns(calm)])
    assert len(proof.missed) == len(proof.wrong) == 1
    _count(proof, case, calm, [step_ns(calm)])
    assert proof.hidden == ["python-0"]
    _count(proof, case, answered, [])
    assert proof.busy == ["python-0"]
    _count_clean(proof, case, answered)
    _count_clean(proof, case, calm)
    assert (len(proof.loud), proof.quiet) == (1, 1)


@pytest.mark.slow  # a process that trains
def test_runs_are_read_or_thrown_away(tmp_path):
    if reason := reason_without_device():
        pytest.skip(reason)
    cases = [case for case in injected() if case.name in ("leak-0", "data-4")]
    proof = NpuProof()
    found = answers(cases, tmp_path, 1, proof)
    assert set(found) | set(proof.busy) == {"leak-0", "data-4"}
    assert proof.thrown_away == len(proof.busy)
    if "leak-0" in found:
        assert "memory-leak" in {one.rule for one in found["leak-0"].findings}

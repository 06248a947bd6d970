# SPDX-License-Identifier: Apache-2.0
"""What the Cluster view and the verdict say about waiting for a rank does not contradict each other."""

from __future__ import annotations

import pytest

import stepscope
from stepscope.cluster.report import lines
from stepscope.cluster.run import analyse_run, load


@pytest.mark.parametrize("form", ["text", "db"])
def test_ranks_that_were_not_recorded_are_known_by_the_transfers_to_them(golden, form):
    """Two of eight ranks; the verdict names one of the other six, by its number in the group."""
    folder = golden / "ascend_pt" / form / "level2"
    found = analyse_run(load([folder]))
    assert (found.expected, found.missing) == (8, [2, 3, 4, 5, 6, 7])
    late = next(one for one in stepscope.verdict(sorted(folder.iterdir())).findings if one.rule == "peer-wait")
    assert late.params["late_rank"] in found.missing
    # Each of the two waits so long; the verdict tells it of the one that waits longer.
    assert 0.8 * late.saved_ns < found.wait_outside_ns <= late.saved_ns
    text = "\n".join(lines(found, "en"))
    assert "for ranks that were not recorded" in text
    assert "nobody is slow: no rank" not in text.replace("of the recorded ones nobody", "")


def test_who_is_late_in_the_only_step_is_the_same_rank(golden):
    folder = golden / "ascend_pt" / "text" / "level0"
    found = analyse_run(load([folder]))
    late = next(one for one in stepscope.verdict(sorted(folder.iterdir())).findings if one.rule == "peer-wait")
    (problem,) = (one for one in found.problems if one.kind == "one_step")
    assert problem.rank == late.params["late_rank"]
    assert problem.params["wait_ms"] * 1e6 >= late.saved_ns, "the verdict leaves out what is hidden behind computing"
    assert "nobody is slow" not in "\n".join(lines(found, "en"))

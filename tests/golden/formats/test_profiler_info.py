# SPDX-License-Identifier: Apache-2.0
"""The profiler_info files of real captures."""

from __future__ import annotations

import pytest

from stepscope.formats.ascend.profiler_info import read_capture_facts
from stepscope.formats.framework import read_clock


@pytest.mark.parametrize("form", ["text", "db"])
@pytest.mark.parametrize("level", ["Level0", "Level2"])
@pytest.mark.parametrize("rank", [0, 1])
def test_real_captures(golden, form, level, rank):
    folder = golden / "ascend_pt" / form / level.lower() / f"rank{rank}_ascend_pt"
    facts, quality = read_capture_facts(folder)
    assert quality.height == 0
    assert (facts.rank, facts.activities, facts.level, facts.export_type) == (rank, ("CPU", "NPU"), level, (form,))
    assert facts.aic_metrics == {"Level0": "ACL_AICORE_NONE", "Level2": "ACL_AICORE_PIPE_UTILIZATION"}[level]
    assert facts.schedule == {"wait": 0, "active": 1, "warmup": 10, "repeat": 1, "skip_first": 40}
    assert facts.record_shapes
    assert facts.with_stack
    assert not facts.mstx
    assert bool(facts.metadata) == (form == "text")
    assert facts.session_start_ns is not None
    assert facts.session_end_ns is not None
    assert 0 < facts.session_end_ns - facts.session_start_ns < 10_000_000_000


def test_real_clock_files(golden):
    """Counter, monotonic and Unix time of a real PROF folder."""
    (prof,) = (golden / "prof_raw" / "a2_torch_add_2100tasks").glob("PROF_*")
    clock = read_clock(prof.parent, prof, {"start_info": {"syscnt_enable": True}})
    assert (clock.mhz, clock.tick_zero, clock.monotonic_zero_ns) == (100.0, 8_213_587_736_736, 82_103_048_096_100)
    assert clock.epoch_offset_ns == 1_784_177_114_019_396_000 - 82_103_047_892_300
    assert clock.quality.height == 0

# SPDX-License-Identifier: Apache-2.0
"""A folder's two sides, read one after the other or at the same time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from benchmarks import raw_capture
from polars.testing import assert_frame_equal

from stepscope.formats import cann
from stepscope.formats.cann import tables
from stepscope.formats.cann.write.settings import A2

WAIT_SECONDS = 30.0  # only where the test fails


@pytest.mark.parametrize("platform", [A2, 7, 15])
def test_both_ways_give_the_same_tables(tmp_path: Path, platform: int):
    prof = raw_capture.write(tmp_path, 500, platform=platform)
    apart, together = cann.read(prof, parallel=False), cann.read(prof, parallel=True)
    assert apart.kernels.height >= 500
    assert apart.filled() == together.filled()
    for name in apart.filled():
        assert_frame_equal(apart[name], together[name], check_exact=True)


def test_a_side_that_asks_nothing_of_the_host_does_not_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    begun = threading.Event()
    read_host, read_device = tables.read_host, tables.read_device

    def host(*arguments, **options):
        assert begun.wait(WAIT_SECONDS)
        return read_host(*arguments, **options)

    def device(*arguments, **options):
        begun.set()
        return read_device(*arguments, **options)

    monkeypatch.setattr(tables, "read_host", host)
    monkeypatch.setattr(tables, "read_device", device)
    assert cann.read(raw_capture.write(tmp_path, 100)).kernels.height >= 100

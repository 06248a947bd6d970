"""Garbage collections of Python reach the disk while the recording runs."""

from __future__ import annotations

import gc
import os

from stepscope.collect.sources.gc_pauses import FILE, GcPauses


def test_pauses_are_written_before_the_end(tmp_path):
    pauses = GcPauses(tmp_path, 0.0)
    pauses.start()
    try:
        gc.collect()
        written = (tmp_path / FILE).read_bytes()  # a killed process leaves at least this
    finally:
        pauses.stop()
    assert len(written) == 24
    assert int.from_bytes(written[:8], "little") == os.getpid()

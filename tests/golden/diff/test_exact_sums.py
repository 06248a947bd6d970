# SPDX-License-Identifier: Apache-2.0
"""Rows sum exactly to the change of the mean step on every pair of captures there is, NPU against GPU too.

Every ninth pair, unless the run is thorough (`make soak`).
"""

from __future__ import annotations

import itertools

import pytest
import snapshot
from shared_data import GOLDEN
from thorough import some

from stepscope.capture import open_all
from stepscope.diff.align import LEVELS
from stepscope.diff.engine import Side, compare_sides, record
from stepscope.errors import CaptureError
from stepscope.formats.discover import find

pytestmark = pytest.mark.slow  # hundreds of pairs


def recordings(folders):
    found = {}
    for folder in folders:
        try:
            captures = open_all(folder)
        except CaptureError:
            continue
        for capture in captures:
            try:
                found[str(capture.path)] = record(capture.load(keep=False))
            except CaptureError:
                continue  # a kind of file that is not read says so elsewhere
    return found


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Captures of tests/captures."""
    return recordings([snapshot.unpack(name, tmp_path_factory.mktemp(name)) for name in snapshot.names()])


@pytest.fixture(scope="module")
def real():
    root = GOLDEN.folder()
    places = {files.root.parent for pattern in ("*", "*/*", "*/*/*") for folder in root.glob(pattern) for files in _found(folder)}
    return recordings(sorted(places))


def _found(folder):
    try:
        return find(folder)
    except (CaptureError, OSError):
        return []


def check_all_pairs(captures):
    assert len(captures) >= 8
    pairs = list(itertools.combinations_with_replacement(captures, 2))
    for number, (one, other) in enumerate(some(pairs, 18)):
        # Each pair at one level and by part; levels take turns.
        by = list(LEVELS)[number % len(LEVELS)]
        found = compare_sides(Side([captures[one]]), Side([captures[other]]), by=by)
        for rows in (found.rows, found.parts):
            assert sum(row.delta_ns for row in rows) == found.delta_ns, (one, other, by)
            assert all(row.calls_ns + row.price_ns == row.delta_ns for row in rows)
            assert sum(row.new_ns for row in rows) == found.new_ns
        if one == other:
            assert not any(row.delta_ns for row in found.rows)
            assert all(check.same is not False for check in found.checks if check.name != "complete")


def test_our_captures(ours):
    check_all_pairs(ours)


def test_real_captures(real):
    kinds = {one.workload.device.split(" ")[0] for one in real.values()}
    assert {"npu", "cuda", "rocm", "cpu"} <= kinds
    check_all_pairs(real)

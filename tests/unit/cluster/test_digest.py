"""Where a rank worked and where it waited, on spans small enough to check by hand."""

from __future__ import annotations

import numpy as np

from stepscope.analysis.partition.spans import union
from stepscope.cluster.digest import Calls, call_rows
from stepscope.tables.cluster import CAUSES

US = 1000


def ints(*values):
    return np.array(values, dtype=np.int64) * US


def spans(*pairs):
    return union(ints(*(first for first, _ in pairs)), ints(*(last for _, last in pairs)))


def rows_of(calls, windows, compute, **causes):
    issue, start, end = zip(*calls, strict=True)
    window = np.searchsorted(ints(*windows), ints(*issue), side="right") - 1
    return call_rows(Calls(ints(*issue), ints(*start), ints(*end), window), ints(*windows), spans(*compute), causes)


def test_waiting_for_a_call_is_not_work():
    # Computes 100, stands still for a call of 60, computes 40.
    rows = rows_of([(100, 100, 160)], (0, 200), [(0, 100), (160, 200)])
    assert rows.work[:, 0].tolist() == [100 * US, 40 * US]
    assert rows.stop.tolist() == [True, False]
    assert rows.wait.tolist() == [60 * US]
    assert rows.work.sum() + rows.wait.sum() == 200 * US


def test_what_the_host_does_after_the_call_is_work():
    rows = rows_of([(100, 100, 160)], (0, 250), [(0, 100), (200, 250)], dispatch=spans((160, 200)))
    assert rows.work[1, CAUSES.index("dispatch")] == 40 * US
    assert rows.wait.tolist() == [60 * US]


def test_an_asynchronous_call_is_waited_for_later():
    # The first call is issued at 50 and waited for at 150, after a second one was issued at 100; then 30 of computing.
    rows = rows_of([(50, 50, 180), (100, 180, 190), (210, 210, 220)], (0, 220), [(0, 150), (180, 210)])
    assert rows.late.tolist() == [-1, -1, 0, -1]
    assert rows.after[2] == 30 * US
    assert not rows.stop[0]


def test_a_call_may_be_waited_for_after_more_work():
    # Issued at 50, waited for at 100: the 50 in between are work that hides the call.
    rows = rows_of([(50, 50, 130)], (0, 150), [(0, 100), (130, 150)])
    assert rows.stop[0]
    assert rows.before_stop[0] == 50 * US


def test_a_device_without_work_does_not_wait():
    # The next task was launched at 300, long after the call had ended at 160: loading data held it up.
    loading = spans((90, 300))
    compute, windows = spans((0, 100), (301, 320)), ints(0, 320)
    calls = Calls(ints(100), ints(100), ints(160), np.array([0]))
    rows = call_rows(calls, windows, compute, {"data_loading": loading}, ints(0, 301), ints(0, 300))
    assert rows.work[1, CAUSES.index("data_loading")] == 200 * US
    assert rows.wait.tolist() == [0]


def test_steps_are_closed_by_a_row_of_their_own():
    rows = rows_of([(50, 50, 60), (150, 150, 160)], (0, 100, 200), [(0, 50), (60, 150), (160, 200)])
    assert rows.call.tolist() == [0, -1, 1, -1]
    assert rows.window.tolist() == [0, 0, 1, 1]
    assert rows.work[:, 0].tolist() == [50 * US, 40 * US, 50 * US, 40 * US]

"""Input shapes of kernels from noted calls: the number of an arrow comes back, and what is in doubt stays open."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.formats import mindspore
from stepscope.formats.mindspore.index_names import events_of
from stepscope.formats.mindspore.records import DISPATCH_FILE, OP_RANGE, encode

INFO = {"ms_version": "2.10.0", "clock": {"freq_mhz": 1000.0, "begin": {"syscnt": 0, "unix_ns": 0}}}
LAUNCH = events_of("2.10.0").index("PyNativeLaunchTask")
DEVICE = events_of("2.10.0").index("PyNativeDeviceTask")
UNIT = 100_000  # ns: far more than a kernel's clock may be off


def record(tid, start, end, **more):
    texts = {"name": "x", "full_name": "x", "module_text": "", "event_text": ""}
    return {"tid": tid, "start": start * UNIT, "end": end * UNIT, "module": 3, **texts, **more}


def task(name, number, at, *, sender, begun):
    """An operator queued on one thread, and its launch on thread 2."""
    return [
        record(sender, begun, begun + 1, name="flow", full_name="flow", flow=number),
        record(2, at, at + 40, event=DEVICE, flow=number),
        record(2, at + 10, at + 20, event=LAUNCH, full_name=name),
    ]


RANGES = [
    *task("MatMul", 5, 200, sender=1, begun=100),
    *task("MatMul", 5, 400, sender=1, begun=300),
    *task("MatMul", 6, 500, sender=1, begun=480),
    *task("Concat", 7, 600, sender=3, begun=560),
]
CALLS = [
    {"tid": 1, "start": 90 * UNIT, "end": 110 * UNIT, "name": "MatMul", "info": "4,8;8,2"},
    {"tid": 1, "start": 290 * UNIT, "end": 310 * UNIT, "name": "MatMul", "info": "2,2;2,2"},
    {"tid": 1, "start": 470 * UNIT, "end": 490 * UNIT, "name": "Mul", "info": "9,9;9,9"},
]
CALL_BYTES = encode(OP_RANGE, CALLS)


@pytest.fixture
def framework(tmp_path):
    folder = tmp_path / "FRAMEWORK"
    folder.mkdir()
    (folder / "mindspore.op_range").write_bytes(encode(OP_RANGE, RANGES))
    times = {"MatMul": (211, 411, 511), "Concat": (611,)}
    lines = [f"{name};HostCpuOps;" + " ".join(f"{at * UNIT},0.001,0" for at in starts) for name, starts in times.items()]
    (folder / "cpu_op_execute_timestamp_0.txt").write_text("\n".join(lines))
    (folder / DISPATCH_FILE).write_bytes(CALL_BYTES)
    return folder


def test_a_kernel_has_the_shapes_of_the_call_that_queued_it(framework):
    tables = mindspore.read(framework, None, INFO, (None, None)).check()
    # The number 5 was given twice; the third call had another name, the fourth kernel was queued by a thread nobody watched.
    assert tables.kernels["input_shapes"].to_list() == ["4,8;8,2", "2,2;2,2", None, None]
    assert tables.quality.select("source", "issue", "count").rows() == [(DISPATCH_FILE, "shapes-unknown", 2)]


def test_a_number_from_two_threads_is_nobodys(framework):
    other = task("MatMul", 5, 700, sender=4, begun=690)
    (framework / "mindspore.op_range").write_bytes(encode(OP_RANGE, [*RANGES, *other]))
    assert mindspore.read(framework, None, INFO, (None, None)).kernels["input_shapes"].null_count() == 4


@pytest.mark.slow  # half a second and more
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, len(CALL_BYTES) - 1), value=st.integers(0, 255), cut=st.integers(0, len(CALL_BYTES)))
def test_damaged_notes_leave_the_kernels(framework, place, value, cut):
    changed = bytearray(CALL_BYTES)
    changed[place] = value
    (framework / DISPATCH_FILE).write_bytes(bytes(changed[:cut]))
    assert mindspore.read(framework, None, INFO, (None, None)).check().kernels.height == 4

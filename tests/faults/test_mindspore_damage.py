"""Damaged MindSpore files: whatever bytes they hold, reading gives tables and counts what is lost."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples

from stepscope.formats import mindspore
from stepscope.formats.mindspore.records import OP_RANGE, encode

FILES = (
    "mindspore.op_range", "op_range_0", "mindspore.memory_usage", "mindspore.record_shapes", "cpu_op_execute_timestamp_0.txt",
    "cpu_framework_0.txt", "cpu_ms_memory_record_0.txt", "pipeline_profiling_0.json", "minddata_cpu_utilization_0.json",
    "dataset_iterator_profiling_0.txt",
)  # fmt: skip
ANY_FOLDER = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
RECORDS = encode(
    OP_RANGE,
    [
        {
            "tid": 1,
            "start": number + 1,
            "end": number + 5,
            "name": "a",
            "full_name": "b" * number,
            "module_text": "",
            "event_text": "",
        }
        for number in range(20)
    ],
)


def read(folder):
    return mindspore.read(
        folder / "FRAMEWORK", None, {"clock": {"freq_mhz": 1000.0, "begin": {"syscnt": 0, "unix_ns": 0}}}, (None, None)
    )


@pytest.fixture
def framework(tmp_path):
    (tmp_path / "FRAMEWORK").mkdir()
    return tmp_path / "FRAMEWORK"


@ANY_FOLDER
@given(name=st.sampled_from(FILES), content=st.binary(max_size=300))
def test_any_bytes_in_any_file(framework, name, content):
    for path in framework.iterdir():
        path.unlink()
    (framework / name).write_bytes(content)
    read(framework.parent).check()


@ANY_FOLDER
@given(place=st.integers(0, len(RECORDS) - 1), value=st.integers(0, 255), cut=st.integers(0, len(RECORDS)))
def test_a_changed_byte_and_a_torn_end(framework, place, value, cut):
    changed = bytearray(RECORDS)
    changed[place] = value
    (framework / "mindspore.op_range").write_bytes(bytes(changed[:cut]))
    tables = read(framework.parent).check()
    assert tables.ops.height + tables.python_calls.height <= 20


@pytest.mark.parametrize("missing", FILES)
def test_a_missing_file_leaves_the_others(golden, tmp_path, missing):
    source = golden / "mindspore" / "oprange-pynative"
    shutil.copytree(source / "FRAMEWORK", tmp_path / "FRAMEWORK")
    (tmp_path / "FRAMEWORK").chmod(0o750)
    (tmp_path / "FRAMEWORK" / missing).unlink(missing_ok=True)
    tables = read(tmp_path).check()
    assert (tables.ops.height == 3103) == (missing != "mindspore.op_range")
    assert (tables.kernels.height == 180) == (missing != "cpu_op_execute_timestamp_0.txt")

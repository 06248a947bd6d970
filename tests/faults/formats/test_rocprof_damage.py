# SPDX-License-Identifier: Apache-2.0
"""Results of rocprofv3 that are not whole, or hold what they should not: counted, or an error that helps."""

from __future__ import annotations

import gzip
import json
import random

import pytest
from rocprof_files import dispatch, process, record, write
from thorough import some

from stepscope.errors import CaptureError
from stepscope.formats.rocprof.read import read


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    calls = [record("HIP_RUNTIME_API", 0, number * 10, number * 10 + 2, identity=number) for number in range(200)]
    tasks = [dispatch(number * 10, number * 10 + 5, number % 5, identity=number) for number in range(200)]
    names = {number: f"k{number}" for number in range(5)}
    path = tmp_path_factory.mktemp("rocprof") / "whole.json"
    return write(path, process(kernels=names, kernel_dispatch=tasks, hip_api=calls)).read_bytes()


def refusal(path):
    """The error that a file is refused with; None when it is read."""
    try:
        read(path).check()
    except CaptureError as error:
        return error
    return None


def assert_read_or_refused(path):
    error = refusal(path)
    assert error is None or (error.where and error.fix)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.2, 0.5, 0.9, 0.9999])
def test_cut_anywhere(whole, tmp_path, share):
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: int(len(whole) * share)])
    assert_read_or_refused(path)


def test_cut_inside_the_records(whole, tmp_path):
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: whole.index(b'"start_timestamp": 1000,')])
    tables = read(path)
    assert tables.kernels.height == 100
    assert {"truncated-file", "truncated-record"} <= set(tables.quality["issue"].to_list())


@pytest.mark.parametrize("seed", some(range(20), 3))
def test_flipped_bytes(whole, tmp_path, seed):
    chance = random.Random(seed)
    damaged = bytearray(whole)
    for _ in range(40):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    path = tmp_path / "flipped.json"
    path.write_bytes(damaged)
    assert_read_or_refused(path)


def test_damaged_gzip(whole, tmp_path):
    packed = gzip.compress(whole)
    path = tmp_path / "a.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    assert_read_or_refused(path)


@pytest.mark.parametrize("value", [None, -1, 1 << 80, 1e300, "x", [], {}, [[1]], {"handle": "x"}])
def test_values_of_another_type(whole, tmp_path, value):
    document = json.loads(whole)
    (one,) = document["rocprofiler-sdk-tool"]
    for part in (
        one["metadata"],
        one["agents"][1],
        one["strings"],
        one["kernel_symbols"][0],
        *one["buffer_records"]["kernel_dispatch"][:1],
    ):
        for key in part:
            changed = json.loads(whole)
            target = json.loads(json.dumps(part)) | {key: value}
            text = json.dumps(changed).replace(json.dumps(part), json.dumps(target), 1)
            path = tmp_path / "odd.json"
            path.write_text(text)
            assert_read_or_refused(path)

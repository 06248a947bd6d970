# SPDX-License-Identifier: Apache-2.0
"""Exports of Nsight Systems that are not whole, or hold what they should not: counted, or an error that helps."""

from __future__ import annotations

import random
import sqlite3

import pytest
from nsys_files import call, kernel, make_export, nvtx

from stepscope.errors import CaptureError
from stepscope.formats.nsys.read import read

TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": [
        kernel(number * 10, number * 10 + 5, f"k{number % 7}", correlation=number) for number in range(300)
    ],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [
        call(number * 10, number * 10 + 2, "cudaLaunchKernel", correlation=number) for number in range(300)
    ],
    "NVTX_EVENTS": [nvtx(number * 10, number * 10 + 9, f"aten::mm, op_id = {number}") for number in range(1, 300)],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_export(tmp_path_factory.mktemp("nsys") / "whole.sqlite", TABLES).read_bytes()


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


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.95])
def test_cut_anywhere(whole, tmp_path, share):
    path = tmp_path / "cut.sqlite"
    path.write_bytes(whole[: int(len(whole) * share)])
    assert_read_or_refused(path)


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bytes(whole, tmp_path, seed):
    chance = random.Random(seed)
    damaged = bytearray(whole)
    for _ in range(200):
        damaged[chance.randrange(100, len(damaged))] = chance.randrange(256)
    path = tmp_path / "flipped.sqlite"
    path.write_bytes(damaged)
    assert_read_or_refused(path)


@pytest.mark.parametrize("table", list(TABLES))
@pytest.mark.parametrize("cell", ["'text'", "-1", "9223372036854775807", "1e300", "NULL", "x'ff00'"])
def test_cells_of_another_type(whole, tmp_path, table, cell):
    path = tmp_path / "odd.sqlite"
    path.write_bytes(whole)
    connection = sqlite3.connect(path)
    with connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        for number, column in enumerate(columns):
            connection.execute(f'UPDATE {table} SET "{column}" = {cell} WHERE rowid = {number + 1}')
        connection.execute(f"UPDATE StringIds SET value = {cell if cell != 'NULL' else 0} WHERE rowid = 2")
    connection.close()
    tables = read(path).check()
    assert tables.kernels.height > 250


@pytest.mark.parametrize("table", [*TABLES, "StringIds"])
def test_table_that_lacks_columns(whole, tmp_path, table):
    path = tmp_path / "lacking.sqlite"
    path.write_bytes(whole)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"CREATE TABLE {table} (other)")
    connection.close()
    tables = read(path).check()
    assert (tables.quality["issue"].cast(str).is_in(["missing-columns", "missing-names"])).any()

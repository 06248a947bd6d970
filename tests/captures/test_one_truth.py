# SPDX-License-Identifier: Apache-2.0
"""Page, `top`, `info`, JSON and report give the same figures on every capture of our own."""

from __future__ import annotations

import csv

import pytest
import snapshot
from viewer.figures import Compared, check_all, check_kernels

from stepscope.web.catalogue import Catalogue


@pytest.mark.slow  # reads a capture and asks for all of it in four ways
@pytest.mark.parametrize("name", snapshot.names())
def test_all_ways_to_a_figure_agree(name, tmp_path):
    catalogue = Catalogue([snapshot.unpack(name, tmp_path / name)])
    catalogue.scan()
    entries = catalogue.entries()
    assert entries
    for entry in entries:
        check_all(Compared(catalogue, entry))
    catalogue.close()


@pytest.mark.slow  # as above
def test_kernels_are_those_of_the_file(tmp_path):
    folder = snapshot.unpack("ascend-text", tmp_path)
    (file,) = folder.rglob("kernel_details.csv")
    with file.open() as lines:
        durations = [float(row["Duration(us)"]) for row in csv.DictReader(lines)]
    catalogue = Catalogue([folder])
    catalogue.scan()
    (entry,) = catalogue.entries()
    count, total = check_kernels(Compared(catalogue, entry))
    catalogue.close()
    assert (count, round(total, 3)) == (len(durations), round(sum(durations), 3))

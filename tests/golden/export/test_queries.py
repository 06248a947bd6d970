# SPDX-License-Identifier: Apache-2.0
"""How many queries an analysis runs: on a small capture these, and not its rows, are the cost."""

from __future__ import annotations

import pytest
from polars import LazyFrame

from stepscope.analyser import Request, analyse_captures
from stepscope.capture import open_all

pytestmark = pytest.mark.usefixtures("kernels")

MOST = 1_000  # 902 when this was written, 1,890 before; a generated capture of 10,000 operators took 1,171 and 2,293


def test_an_analysis_takes_few_queries(golden, tmp_path, monkeypatch):
    count = depth = 0

    def counted(run):
        def collect(self, *args, **options):
            nonlocal count, depth
            count += not depth
            depth += 1
            try:
                return run(self, *args, **options)
            finally:
                depth -= 1

        return collect

    for name in ("collect", "_collect_eager"):  # the second one is how polars runs what is called on a frame or a column
        monkeypatch.setattr(LazyFrame, name, counted(getattr(LazyFrame, name)))
    captures = open_all(golden / "ascend_pt/text/level2/rank0_ascend_pt")
    (result,) = analyse_captures(captures, Request(exports=("text",), out=tmp_path, parallel=False), jobs=1)
    assert result.ok, result.error
    assert 500 < count < MOST  # far less would mean that polars has another way to run them

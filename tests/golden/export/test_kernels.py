# SPDX-License-Identifier: Apache-2.0
"""All files of real captures are the same, byte by byte, with the C++ kernels and without."""

from __future__ import annotations

import pytest

from stepscope.analyser import Request, analyse_captures
from stepscope.capture import open_all

pytestmark = pytest.mark.usefixtures("kernels")

CAPTURES = [
    "ascend_pt/text/level0",
    "ascend_pt/text/level2",
    "ascend_pt/db/level2",
    "kineto/gpu_nccl.pt.trace.json.gz",
    "kineto/mi300_bert_small.json.gz",
    "mindspore/cpu-official-pynative",
    "mindspore/oprange-stack",
    "nsys/h100_2gpu_1s.sqlite",
    "prof_raw/a2_torch_add_2100tasks",
]


@pytest.mark.parametrize("name", CAPTURES)
def test_same_bytes(golden, name, tmp_path, monkeypatch):
    written = {}
    for switch in ("", "0"):
        monkeypatch.setenv("STEPSCOPE_KERNELS", switch)
        out = tmp_path / f"out{switch}"
        captures = open_all(golden / name)
        results = analyse_captures(captures, Request(exports=("text", "db", "perfetto", "kineto"), out=out), jobs=1)
        assert all(result.ok for result in results), results
        files = {str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file() and path.parent.name != "logs"}
        written[switch] = {name: path.read_bytes() for name, path in files.items()}
    assert written[""].keys() == written["0"].keys()
    assert written[""]
    assert not [name for name in written[""] if written[""][name] != written["0"][name]]

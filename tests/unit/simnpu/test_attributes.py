"""Attributes of operators: what they are called with besides tensors, as the device describes it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from npu_process import on_npu  # noqa: E402
from torch.nn import functional  # noqa: E402


def described(*, attributes):
    """Attributes of the kernels of a few calls, by the operator's name."""
    from stepscope.simnpu.records import Records

    x = torch.ones(4, 4, device="npu")
    torch.npu.synchronize()
    records = Records()
    records.start(attributes=attributes)
    for slope in (0.25, 0.5, 0.25):
        functional.leaky_relu(x, slope)
    x.sum(0, keepdim=True, dtype=torch.float64)
    torch.div(x, x, rounding_mode="floor")
    torch.npu.synchronize()
    records.stop()
    found: dict[str, list[object]] = {}
    for task in records.tasks():
        description = records.description(int(task["description"])) if task["description"] else {}
        if description:
            found.setdefault(description["operator"], []).append(description["attributes"])
    return found


@on_npu
def test_each_call_has_the_numbers_it_was_made_with():
    found = described(attributes=True)
    assert found["aten::leaky_relu"] == [{"negative_slope": 0.25}, {"negative_slope": 0.5}, {"negative_slope": 0.25}]
    assert found["aten::sum.dim_IntList"] == [{"dim": [0], "keepdim": True, "dtype": "DOUBLE"}]
    assert found["aten::div.Tensor_mode"] == [{"rounding_mode": "floor"}]


@on_npu
def test_numbers_that_do_not_tell_calls_apart_are_left_out():
    """Without the switch calls that differ in a number share a description, which cannot have the number of each."""
    assert described(attributes=False)["aten::leaky_relu"] == [{}, {}, {}]

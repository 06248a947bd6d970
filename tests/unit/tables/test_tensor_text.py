# SPDX-License-Identifier: Apache-2.0
"""Recorded tensors, parsed."""

from __future__ import annotations

import pytest
from framework_examples import GRADIENT, STATE, TENSOR_A, TENSOR_B, WEIGHT
from hypothesis import given
from hypothesis import strategies as st

from stepscope.tables.tensor_text import (
    ModuleParam,
    OptimizerParam,
    Tensor,
    parse_module_params,
    parse_optimizer_params,
    parse_tensor,
    walk_inputs,
)

A = Tensor(0x55D0C0A81000, 0x7F1E5C000000, "float", 4, (2, 3), (3, 1), 20, 0)
B = Tensor(0x55D0C0A82000, 0x7F1E5C010000, "float", 4, (3, 4), (4, 1), 20, 0)


def test_tensor():
    assert parse_tensor(TENSOR_A) == A
    assert parse_tensor("0;;c10::complex<float>;8;;;0;-1") == Tensor(0, None, "c10::complex<float>", 8, (), (), 0, -1)


@pytest.mark.parametrize("text", ["", "x", TENSOR_A + ";1", "0xzz" + TENSOR_A[14:], TENSOR_A.replace(";4;", ";four;")])
def test_malformed_tensor(text):
    assert parse_tensor(text) is None


def test_inputs_in_order():
    lists = f"{TENSOR_A}){TENSOR_B})" + "}" + f"{TENSOR_B})"
    found = walk_inputs(
        "float;TensorList;None;Scalar;ScalarList;;TensorList;float;Scalar", f"{TENSOR_A}){TENSOR_B}", lists, "Int;Bool"
    )
    assert found == [A, [A, B], None, "Int", None, None, [B], B, "Bool"]


def test_empty_lists_are_empty():
    assert walk_inputs("TensorList", None, "", None) == [[]]
    assert walk_inputs("TensorList;TensorList;TensorList", None, "}" + TENSOR_A + ")}", None) == [[], [A], []]


def test_fewer_recorded_than_announced():
    assert walk_inputs("float;TensorList;Scalar", None, None, None) == [None, [], None]
    assert walk_inputs(None, TENSOR_A, None, None) == []


def test_module_parameters():
    weight, gradient = parse_tensor(WEIGHT), parse_tensor(GRADIENT)
    assert parse_module_params(f"weight){WEIGHT}){GRADIENT}" + "}" + f"bias){WEIGHT})") == [
        ModuleParam("weight", weight, gradient),
        ModuleParam("bias", weight, None),
    ]


def test_optimizer_parameters():
    weight, gradient, state = parse_tensor(WEIGHT), parse_tensor(GRADIENT), parse_tensor(STATE)
    complex_state = "0x1;0x2;c10::complex<float>;8;1;1;0;-1"
    text = f"{WEIGHT}){GRADIENT})exp_avg>{STATE}]step>{complex_state}]" + "}" + f"{WEIGHT}))"
    assert parse_optimizer_params(text) == [
        OptimizerParam(weight, gradient, {"exp_avg": state, "step": parse_tensor(complex_state)}),
        OptimizerParam(weight, None, {}),
    ]


@given(st.text("0x1;,)}]>ab", max_size=60))
def test_any_text(text):
    parse_tensor(text)
    parse_module_params(text)
    parse_optimizer_params(text)
    walk_inputs(text, text, text, text)

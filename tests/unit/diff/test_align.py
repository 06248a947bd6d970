# SPDX-License-Identifier: Apache-2.0
"""Which key of one side is which of the other."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.diff import align as aligned
from stepscope.diff.align import align, edit_pairs
from stepscope.diff.ledger import KEY
from stepscope.diff.names import normal


def keys(*rows: tuple[str, str, str]) -> pl.DataFrame:
    """Keys of computing: module, op, kernel."""
    return pl.DataFrame([("computing", *row) for row in rows], schema=dict.fromkeys(KEY, pl.String), orient="row")


def sequence(*rows: tuple[str, str]) -> pl.DataFrame:
    named = [("computing", module, op) for module, op in rows]
    return pl.DataFrame(named, schema={"part": pl.String, "module": pl.String, "op": pl.String}, orient="row")


NOTHING = (sequence(), sequence())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("void gemm_kernel<float, 4>(int)", "gemm_kernel<c10::Half>(int)", id="template arguments"),
        pytest.param("Add_93b3c0de12_210010000", "Add_77aa00ff31_210010111", id="hash and number"),
        pytest.param("aclnnAdd", "Add", id="device prefix"),
        pytest.param("aten::_foreach_add_", "foreach_add", id="namespace"),
    ],
)
def test_normal_names(one, other):
    assert normal(one) == normal(other)


@pytest.mark.parametrize(("one", "other"), [("conv1", "conv2"), ("aten::add", "aten::sub"), ("<lambda>", "(x)")])
def test_names_that_stay_apart(one, other):
    assert normal(one) != normal(other)


def test_every_key_is_in_one_row():
    base = keys(("m", "a", "k1"), ("m", "a", "k2"), ("n", "a", "k1"), ("m", "b", "gone"))
    new = keys(("m", "a", "k1"), ("m", "a", "k3"), ("m", "c", "x"))
    for by in aligned.LEVELS:
        pairs = align(base, new, by, NOTHING)
        assert sorted(row for pair in pairs for row in pair.base_rows) == list(range(base.height))
        assert sorted(row for pair in pairs for row in pair.new_rows) == list(range(new.height))


def test_other_kernels_of_an_operator_are_its_implementation():
    base, new = keys(("", "mm", "k1"), ("", "mm", "old")), keys(("", "mm", "k1"), ("", "mm", "new1x"), ("", "mm", "new2x"))
    found = {pair.match: pair for pair in align(base, new, "kernel", NOTHING)}
    assert found["exact"].name(3) == "k1"
    assert (found["implementation"].name(3, side="base"), found["implementation"].name(3)) == ("old", "new1x + new2x")


def test_an_operator_in_the_place_of_another():
    base = keys(("m", "linear", ""), ("m", "relu", ""), ("n", "softmax", ""))
    new = keys(("m", "linear", ""), ("m", "gelu", ""), ("n", "softmax", ""), ("n", "cast", ""))
    sequences = (
        sequence(("m", "linear"), ("m", "relu"), ("m", "linear"), ("n", "softmax")),
        sequence(("m", "linear"), ("m", "gelu"), ("m", "linear"), ("n", "cast"), ("n", "softmax")),
    )
    found = {(pair.name(2, side="base"), pair.name(2)): pair.match for pair in align(base, new, "op", sequences)}
    assert found == {
        ("linear", "linear"): "exact",
        ("softmax", "softmax"): "exact",
        ("relu", "gelu"): "replaced",
        ("cast", "cast"): "new",
    }


def test_operators_of_other_modules_do_not_replace_each_other():
    base, new = keys(("m", "relu", "")), keys(("n", "gelu", ""))
    pairs = align(base, new, "op", (sequence(("m", "relu")), sequence(("n", "gelu"))))
    assert sorted(pair.match for pair in pairs) == ["base", "new"]


def test_long_sequences_are_paired_by_count(monkeypatch):
    monkeypatch.setattr(aligned, "MOST_SEQUENCE", 3)
    base, new = keys(("", "relu", ""), ("", "mm", "")), keys(("", "gelu", ""), ("", "mm", ""), ("", "cast", ""))
    sequences = (
        sequence(*[("", "mm"), ("", "relu")] * 3),
        sequence(*[("", "mm"), ("", "gelu")] * 3, ("", "cast")),
    )
    found = {pair.match: pair for pair in align(base, new, "op", sequences)}
    assert (found["replaced"].name(2, side="base"), found["replaced"].name(2)) == ("relu", "gelu")
    assert found["new"].name(2) == "cast"


def test_a_shortest_edit():
    one = [("c", name) for name in "abxcabx"]
    other = [("c", name) for name in "abycaby"]
    pairs = edit_pairs(one, other, {("c", "x")}, {("c", "y")})
    assert pairs == [(("c", "x"), ("c", "y"))] * 2
    assert edit_pairs(one, one, set(), set()) == []

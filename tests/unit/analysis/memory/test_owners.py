# SPDX-License-Identifier: Apache-2.0
"""Owners of memory: by line and operator, what was held before as a part of its own."""

from __future__ import annotations

import polars as pl

from stepscope.analysis.memory.owners import BEFORE, NAMELESS, UNKNOWN, owners, tree, with_operators

PLACES = pl.DataFrame({"module": ["A", "A", None], "line": ["a.py(1): f", "a.py(2): f", None]})


def held(*rows: tuple[str, int, int | None, int | None]) -> pl.DataFrame:
    columns = {"name": pl.String, "bytes": pl.Int64, "op": pl.Int64, "release_ns": pl.Int64}
    return pl.DataFrame(rows, schema=columns, orient="row")


def test_bytes_are_added_by_line_and_operator_and_the_rest_was_held_before():
    blocks = held(("mm", 10, 0, 50), ("mm", 5, 0, None), ("add", 20, 1, 60), ("x", 1, 2, 70), ("y", 1, None, 70))
    parts = owners(blocks, PLACES, "line", 100)
    assert parts.select("owner", "operator", "bytes", "count", "released_ns").rows() == [
        (BEFORE, "", 100, 0, None),
        ("a.py(2): f", "add", 20, 1, 60),
        ("a.py(1): f", "mm", 15, 2, None),
        (UNKNOWN, "x", 1, 1, 70),
        (UNKNOWN, "y", 1, 1, 70),
    ]
    assert parts["within"].to_list() == ["", "A", "A", "", ""]
    found = tree(parts)
    assert found.weight[0] == 137
    for node, parent in enumerate(found.parent[1:], start=1):
        assert found.weight[node] <= found.weight[parent]
    assert sum(weight for weight, parent in zip(found.weight, found.parent, strict=True) if parent == 0) == 137
    assert owners(blocks, PLACES, "module", 0)["owner"].unique().sort().to_list() == [UNKNOWN, "A"]


def test_boxes_go_from_the_line_by_the_module_to_the_operator_and_its_blocks():
    blocks = held(("mm", 10, 0, 50), ("mm", 5, 0, None), ("add", 20, 1, 60))
    found = tree(owners(blocks, PLACES, "line", 0))

    def path(node: int) -> list[str | int]:
        own = [found.weight[node] if found.name[node] == NAMELESS else found.names[found.name[node]]]
        return own if found.parent[node] < 0 else path(found.parent[node]) + own

    leaves = [path(node) for node in range(len(found.name)) if node not in found.parent]
    assert leaves == [
        ["peak", "a.py(2): f", "A", "add"],
        ["peak", "a.py(1): f", "A", "mm", 10],
        ["peak", "a.py(1): f", "A", "mm", 5],
    ]


def test_a_block_with_a_name_only_belongs_to_the_call_of_that_name_at_that_time():
    ops = pl.DataFrame({"name": ["mm", "add", "mm"], "start_ns": [0, 4, 10], "end_ns": [3, 6, 20]})
    blocks = pl.DataFrame(
        {"name": ["mm", "mm", "add", "add"], "start_ns": [15, 5, 5, 2], "op": [None, None, None, 7]},
        schema_overrides={"op": pl.Int64},
    )
    assert with_operators(blocks, ops)["op"].to_list() == [2, None, 1, 7]

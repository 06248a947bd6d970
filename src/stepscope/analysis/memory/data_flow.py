# SPDX-License-Identifier: Apache-2.0
"""What each operator read and wrote, as a graph of versions of memory blocks.

A node is an outermost library operator or autograd node, or an allocator event outside all of them. A block starts with
version 0; each node that changes it in place makes the next version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl

from stepscope.analysis.link.op_tree import innermost, row_numbers
from stepscope.analysis.memory.blocks import MALLOC, actions
from stepscope.analysis.memory.mutated_inputs import changed_inputs, is_operator
from stepscope.analysis.memory.storages import OpUse, Storages
from stepscope.tables import Tables

Version = tuple[int, int]  # block, version

BACKWARD_SCOPE = 1
_AUTOGRAD_WRAPPER = "autograd::engine::evaluate_function"


@dataclass
class Node:
    start_ns: int
    backward: bool
    touched: dict[int, bool | None] = field(default_factory=dict)  # block -> changed; None when no operator could tell
    allocated: set[int] = field(default_factory=set)
    freed: set[int] = field(default_factory=set)
    inputs: set[Version] = field(default_factory=set)
    outputs: set[Version] = field(default_factory=set)
    changes: list[Version] = field(default_factory=list)  # versions that ended here

    @property
    def temporaries(self) -> set[int]:
        return self.allocated & self.freed


@dataclass(frozen=True)
class OpKinds:
    """Per operator: the node it belongs to (its row, or -1) and whether it is part of the backward pass."""

    node: list[int]
    backward: list[bool]


def op_kinds(ops: pl.DataFrame) -> OpKinds:
    names = ops["name"].cast(pl.String).fill_null("").to_list()
    operators = {name: is_operator(name) for name in set(names)}
    node = [-1] * len(names)
    backward = [False] * len(names)
    # Parents stand before their children, so one pass carries both down the tree.
    for row, (name, scope, parent) in enumerate(zip(names, ops["scope"], row_numbers(ops["parent"]).tolist(), strict=True)):
        own = scope == BACKWARD_SCOPE
        backward[row] = own or name.startswith(_AUTOGRAD_WRAPPER) or (parent >= 0 and backward[parent])
        above = node[parent] if parent >= 0 else -1
        node[row] = above if above >= 0 else row if own or operators[name] else -1
    return OpKinds(node, backward)


def data_flow(tables: Tables, storages: Storages, kinds: OpKinds) -> list[Node]:
    """Nodes in time order with the versions they read and wrote."""
    ops, nodes = tables.ops, dict[int, Node]()
    start = ops["start_ns"].to_list()
    names = ops["name"].cast(pl.String)

    def of_op(row: int) -> Node:
        if row not in nodes:
            nodes[row] = Node(start[row], kinds.backward[row])
        return nodes[row]

    for use in storages.uses:
        if kinds.node[use.op] >= 0:
            _touch(of_op(kinds.node[use.op]), names[use.op], use)
    strays = []
    for row, owner, is_malloc, time in _allocator_events(tables, kinds):
        block = storages.events.get(row, -1)
        if block < 0 or not storages.blocks[block].is_tensor:
            continue
        if owner >= 0:
            node = of_op(owner)
        else:
            node = Node(time, backward=False)
            strays.append(node)
        (node.allocated if is_malloc else node.freed).add(block)
    ordered = sorted([*nodes.values(), *strays], key=lambda node: node.start_ns)
    _set_versions(ordered)
    return ordered


def _touch(node: Node, name: str | None, use: OpUse) -> None:
    known = name is not None and is_operator(name)
    changed = changed_inputs(name, use.inputs) if name is not None and known else ()
    for position, blocks in enumerate(use.blocks):
        for block in blocks:
            if block < 0:
                continue
            says = position in changed if known else None
            before = node.touched.get(block)
            # One operator that changes the block is enough; one that is known not to outweighs those nobody knows.
            node.touched[block] = says if before is None else before or bool(says)


def _allocator_events(tables: Tables, kinds: OpKinds) -> Iterator[tuple[int, int, bool, int]]:
    """(row, node or -1, whether it allocates, time)."""
    events = tables.memory_events
    owners = innermost(tables.ops, events.select("pid", "tid", "time_ns"), by=("pid", "tid")) if tables.ops.height else None
    rows = row_numbers(owners).tolist() if owners is not None else [-1] * events.height
    malloc = (actions(events) == MALLOC).tolist()
    for row, (op, is_malloc, time) in enumerate(zip(rows, malloc, events["time_ns"].to_list(), strict=True)):
        yield row, kinds.node[op] if op >= 0 else -1, is_malloc, time


def _set_versions(nodes: list[Node]) -> None:
    version: dict[int, int] = {}
    for node in nodes:
        node.inputs = {(block, version.get(block, 0)) for block in {*node.touched, *node.freed} - node.allocated}
        node.outputs = {(block, 0) for block in node.allocated - node.freed}
        for block, changed in node.touched.items():
            if changed is not False and block not in node.allocated:
                before = version.get(block, 0)
                version[block] = before + 1
                node.changes.append((block, before))
                node.outputs.add((block, before + 1))

# SPDX-License-Identifier: Apache-2.0
"""What a block of memory was for: parameter, gradient, activation and so on (docs/formats/outputs.md 11).

Nothing in a capture says so directly; it follows from who wrote a block and who read it. The rules build on each other, so
their order matters: a rule never takes back what an earlier one found.
"""

from __future__ import annotations

from enum import IntEnum

import polars as pl

from stepscope.analysis.link.op_tree import row_numbers
from stepscope.analysis.memory.data_flow import Node, OpKinds, Version
from stepscope.analysis.memory.storages import Storages
from stepscope.tables import Tables


class Category(IntEnum):
    PARAMETER = 0
    OPTIMIZER_STATE = 1
    INPUT = 2
    TEMPORARY = 3
    ACTIVATION = 4
    GRADIENT = 5
    AUTOGRAD_DETAIL = 6
    UNKNOWN = 7


_ACCUMULATE = "torch::autograd::AccumulateGrad"
_TAKES_GRADIENT = ("aten::detach", "aten::add_")


class Categories:
    """Categories of blocks, where needed of single versions; what holds for the block holds for all its versions."""

    def __init__(self) -> None:
        self._of_block: dict[int, Category] = {}
        self._of_version: dict[Version, Category] = {}

    def get(self, version: Version) -> Category | None:
        category = self._of_block.get(version[0])
        return self._of_version.get(version) if category is None else category

    def set_block(self, block: int, category: Category) -> None:
        if block >= 0:
            self._of_block.setdefault(block, category)

    def set_version(self, version: Version, category: Category) -> None:
        self._of_version.setdefault(version, category)


def categorised(tables: Tables, storages: Storages, nodes: list[Node], kinds: OpKinds) -> Categories:
    found = Categories()
    for block in _accumulated(tables, storages, kinds):
        found.set_block(block, Category.GRADIENT)
    for parameter in storages.parameters:
        found.set_block(parameter.gradient, Category.GRADIENT)
    for node in nodes:
        for block in node.temporaries:
            found.set_block(block, Category.TEMPORARY)
    for parameter in storages.parameters:
        found.set_block(parameter.tensor, Category.PARAMETER)
    _set_inputs(found, nodes)
    _set_parameters(found, nodes)
    _set_activations(found, nodes)
    for parameter in storages.parameters:
        for block in parameter.state:
            found.set_block(block, Category.OPTIMIZER_STATE)
    _set_autograd_details(found, nodes)
    return found


def _accumulated(tables: Tables, storages: Storages, kinds: OpKinds) -> list[int]:
    """Blocks that the autograd engine keeps as gradients: what the first operator inside AccumulateGrad takes."""
    names = tables.ops["name"].cast(pl.String).to_list()
    parents = row_numbers(tables.ops["parent"]).tolist()
    first_child: dict[int, int] = {}
    for row, parent in enumerate(parents):
        if parent >= 0 and kinds.backward[parent] and names[parent] == _ACCUMULATE:
            first_child.setdefault(parent, row)
    takers = {row for row in first_child.values() if names[row] in _TAKES_GRADIENT}
    return [block for use in storages.uses if use.op in takers for block in use.blocks[0][:1]]


def _depends_on_gradients(found: Categories, nodes: list[Node]) -> set[int]:
    """Blocks of which any version was made from a gradient or a parameter.

    Any version, because the first version of a parameter is older than the gradient that changes it.
    """
    dependent: set[int] = set()
    size = -1
    while len(dependent) != size:
        size = len(dependent)
        for node in nodes:
            sources = {
                version[0]
                for version in node.inputs
                if version[0] in dependent or found.get(version) in (Category.GRADIENT, Category.PARAMETER)
            }
            if sources:
                dependent |= sources
                dependent.update(block for block, _ in node.outputs)
    return dependent


def _set_inputs(found: Categories, nodes: list[Node]) -> None:
    """Data from outside: leads to a gradient, was not made by the backward pass and depends on no gradient."""
    dependent = _depends_on_gradients(found, nodes)
    leads: set[Version] = set()
    for node in reversed(nodes):
        around = node.inputs | node.outputs
        if any(version in leads or found.get(version) in (Category.GRADIENT, Category.PARAMETER) for version in around):
            leads |= around
    for node in nodes:
        if node.backward:
            leads -= node.outputs
    for version in leads:
        if version[0] not in dependent:
            found.set_version(version, Category.INPUT)


def _set_parameters(found: Categories, nodes: list[Node]) -> None:
    """Parameters that no module showed: enter the forward pass beside inputs, lead to a gradient and are updated from one."""
    candidates: set[Version] = set()
    forward: set[Version] = {
        version for node in nodes for version in node.inputs | node.outputs if found.get(version) is Category.INPUT
    }
    for node in nodes:
        if node.backward or any(found.get(version) is Category.GRADIENT for version in node.inputs | node.outputs):
            continue
        if forward & node.inputs:
            forward |= node.outputs
            candidates |= node.inputs - forward
    used: set[Version] = set()
    for node in reversed(nodes):
        if any(version in used or found.get(version) is Category.GRADIENT for version in node.outputs):
            used |= node.inputs
    dependent = _depends_on_gradients(found, nodes)
    for block in {block for block, _ in candidates & used} & dependent:
        found.set_block(block, Category.PARAMETER)


def _set_activations(found: Categories, nodes: list[Node]) -> None:
    """What the forward pass makes of inputs, parameters and other activations."""
    flood = {Category.INPUT, Category.ACTIVATION}
    harmless = {*flood, Category.PARAMETER, Category.TEMPORARY}
    for node in nodes:
        sources = {found.get(version) for version in node.inputs}
        if not node.backward and sources & flood and not sources - harmless:
            for version in node.outputs:
                found.set_version(version, Category.ACTIVATION)


def _set_autograd_details(found: Categories, nodes: list[Node]) -> None:
    """The rest of what the backward pass makes."""
    for node in nodes:
        if not node.backward:
            continue
        for block, version in node.outputs:
            if version == 0 or found.get((block, version - 1)) in (None, Category.AUTOGRAD_DETAIL):
                found.set_version((block, version), Category.AUTOGRAD_DETAIL)

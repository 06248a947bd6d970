# SPDX-License-Identifier: Apache-2.0
"""The calls directly below a path of operators in two captures, in the order in which they first appear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.analysis.name_tree import NameTree

MOST_PHASES = 200


@dataclass(frozen=True)
class Phase:
    """One name below the path: times of both captures in us, and their sums up to here."""

    name: str
    baseline: float
    experiment: float
    diff: float
    baseline_sum: float
    experiment_sum: float
    diff_sum: float
    children: bool  # there are calls inside it


def phases(trees: Sequence[NameTree], path: list[str], metric: str, begins_ns: Sequence[int]) -> list[Phase] | None:
    """Phases below a path, at most `MOST_PHASES`; None when neither capture has the path.

    Args:
        trees: operators of both captures by path.
        path: names from the top.
        metric: one of `name_tree.METRICS`.
        begins_ns: when each capture began; phases are ordered by the time since then.
    """
    if path and all(tree.at(path) is None for tree in trees):
        return None
    sides = []
    for tree, begin in zip(trees, begins_ns, strict=True):
        node = tree.at(path)
        inner = set(tree.parent)
        sides.append(
            {
                tree.name[child]: (float(tree.values[metric][child]), child in inner, tree.values["first_ns"][child] - begin)
                for child in (tree.children(node) if node is not None else [])
            }
        )
    names = sorted({*sides[0], *sides[1]}, key=lambda name: min(side[name][2] for side in sides if name in side))
    rows: list[Phase] = []
    sums = 0.0, 0.0
    for name in names[:MOST_PHASES]:
        one, other = (side[name][0] if name in side else 0.0 for side in sides)
        sums = sums[0] + one, sums[1] + other
        children = any(side[name][1] for side in sides if name in side)
        rows.append(Phase(name, one, other, other - one, sums[0], sums[1], sums[1] - sums[0], children))
    return rows

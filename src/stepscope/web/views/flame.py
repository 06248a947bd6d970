# SPDX-License-Identifier: Apache-2.0
"""The Flame view: time by call stack or by operators inside operators."""

from __future__ import annotations

from typing import Any

import orjson

from stepscope.analysis.name_tree import NameTree, of_ops, of_stacks
from stepscope.web.loaded import LoadedCapture
from stepscope.web.parameters import Query
from stepscope.web.problems import missing
from stepscope.web.row_filter import in_window, step_numbers

WEIGHTS = {"host": "host_self", "device": "device_self", "count": "calls"}


def tree(capture: LoadedCapture, query: Query) -> NameTree:
    tables = capture.tables
    if not tables.ops.height:
        raise missing("operators", "no operators in this capture")
    has_stacks = tables.ops["stack"].count() > 0
    source = query.choice("source", ("stack", "op"), "stack" if has_stacks else "op")
    if source == "stack" and not has_stacks:
        raise missing("stack", "no call stacks in this capture")
    chosen = in_window(capture, query, tables.ops["start_ns"])
    make = of_stacks if source == "stack" else of_ops
    return capture.once(f"{source} tree", lambda: make(tables)) if chosen is None else make(tables, chosen)


def flame(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    calls = tree(capture, query)
    weight = query.choice("weight", tuple(WEIGHTS))
    limit = query.number("limit", 5000, least=1, most=50_000)
    own, whole = calls.weights(WEIGHTS[weight])
    root = query.optional("root")
    keep = calls.below(root) if root is not None else list(range(len(calls.parent)))
    # The heaviest nodes; a parent is never lighter than its child, so none is shown without the way to it.
    chosen = sorted(sorted((node for node in keep if whole[node] > 0), key=lambda node: -whole[node])[:limit])
    children: dict[int, list[int]] = {}
    inside = set(chosen)
    for node in chosen:
        parent = calls.parent[node] if calls.parent[node] in inside else -1
        children.setdefault(parent, []).append(node)
    total = sum(whole[node] for node in children.get(-1, []))
    names: dict[str, int] = {"all": 0}
    nodes: dict[str, list[Any]] = {"parent": [-1], "name": [0], "weight": [total], "self": [0.0]}
    waiting = [(0, node) for node in sorted(children.get(-1, []), key=lambda node: -whole[node])]
    while waiting:
        parent, node = waiting.pop(0)
        nodes["parent"].append(parent)
        nodes["name"].append(names.setdefault(calls.name[node], len(names)))
        nodes["weight"].append(whole[node])
        nodes["self"].append(own[node])
        number = len(nodes["parent"]) - 1
        waiting += [(number, child) for child in sorted(children.get(node, []), key=lambda child: -whole[child])]
    unit = "" if weight == "count" else "us"
    left_out = sum(whole[node] > 0 for node in keep) - len(chosen)
    return {
        "names": list(names), "nodes": nodes, "total": total, "unit": unit, "left_out": left_out, "steps": step_numbers(capture),
    }  # fmt: skip


def _paths(capture: LoadedCapture, query: Query) -> list[tuple[list[str], float]]:
    calls = tree(capture, query)
    own, _ = calls.weights(WEIGHTS[query.choice("weight", tuple(WEIGHTS))])
    return [(path, weight) for path, weight in zip(calls.paths(), own, strict=True) if weight > 0]


def collapsed(capture: LoadedCapture, query: Query) -> str:
    """One line per stack: frames from the outermost, `;` between, and the weight as a whole number."""
    lines = (f"{';'.join(part.replace(';', ',') for part in path)} {round(weight)}" for path, weight in _paths(capture, query))
    return "\n".join(lines) + "\n"


def speedscope(capture: LoadedCapture, query: Query) -> bytes:
    """A sampled profile in the file format of speedscope."""
    frames: dict[str, int] = {}
    samples, sizes = [], []
    for path, weight in _paths(capture, query):
        samples.append([frames.setdefault(name, len(frames)) for name in path])
        sizes.append(weight)
    unit = "none" if query.text("weight") == "count" else "microseconds"
    profile = {
        "type": "sampled",
        "name": "stepscope",
        "unit": unit,
        "startValue": 0,
        "endValue": sum(sizes),
        "samples": samples,
        "weights": sizes,
    }
    return orjson.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "shared": {"frames": [{"name": name} for name in frames]},
            "profiles": [profile],
        }
    )

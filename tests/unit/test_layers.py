"""The tree is the pipeline: imports point one way, and tests lie where their subject lies."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from source_trees import SOURCE, modules, nodes, tree

# What each layer may import of stepscope, besides itself and errors.
ALLOWED = {
    "errors": set(),
    "environment": set(),
    "language": set(),
    "arrays": set(),
    "child_process": set(),
    "analysis_queue": {"child_process"},
    "tables": set(),
    "render": {"arrays", "native"},
    "formats": {"arrays", "native", "render", "tables"},
    "analysis": {"arrays", "native", "tables"},
    "export": {"analysis", "arrays", "formats", "render", "tables"},
    "capture": {"analysis", "formats", "tables"},
    "simplify": {"formats"},
    "prof_output": {"capture", "export", "formats", "render", "tables"},
    "analyser": {
        "analysis",
        "capture",
        "child_process",
        "export",
        "formats",
        "native",
        "prof_output",
        "render",
        "simplify",
        "tables",
    },
    "report": {"analysis_queue", "analysis", "capture", "tables", "verdict"},
    "top": {"analysis", "tables"},
    "diff": {"analysis", "language", "tables", "verdict"},
    "verdict": {"analysis", "language", "tables"},
    "cluster": {"analysis", "capture", "child_process", "export", "formats", "render", "tables"},
    "share": {"analysis", "capture", "export", "formats", "render", "tables", "verdict", "web"},
    "worker": {"analysis_queue", "analyser", "capture", "child_process", "export", "render", "tables"},
    "native": set(),
    "simnpu": {"formats", "native"},
    "collect": {"analysis_queue", "child_process", "formats", "native", "simnpu"},
    "profiler": {"analyser", "collect"},
    "control": {"collect"},
    "dynamic_profile": {"collect", "control", "profiler"},
    "mstx": {"collect"},
    "integrations": {"collect", "dynamic_profile", "profiler"},
    "watch": {"child_process", "collect", "control", "dynamic_profile", "formats"},
    "compat": {"autoload", "collect", "dynamic_profile", "frameworks", "integrations", "mstx", "profiler", "simnpu"},
    "frameworks": {"collect", "control", "dynamic_profile", "formats", "mstx", "profiler"},
    "mindspore": {"frameworks"},
    "query": {"analysis", "capture", "child_process", "tables", "verdict"},
    "agents": {"analysis", "capture", "diff", "query", "tables", "verdict"},
    "web": {"analysis", "capture", "cluster", "diff", "export", "formats", "query", "render", "report", "tables", "verdict"},
    "doctor": {"analyser", "analysis", "capture", "environment", "native", "profiler"},
    "cli": {
        "agents",
        "analysis_queue",
        "analyser",
        "analysis",
        "capture",
        "cluster",
        "compat",
        "control",
        "diff",
        "doctor",
        "export",
        "integrations",
        "language",
        "native",
        "query",
        "render",
        "report",
        "share",
        "simnpu",
        "tables",
        "top",
        "verdict",
        "watch",
        "web",
    },
    "autoload": {"collect", "dynamic_profile", "integrations", "watch"},
    "__init__": {"analyser", "capture", "diff", "query", "verdict", "watch"},
    "__main__": {"cli"},
}
MOST_FILES = 20  # in a folder
FOREIGN = {"torch", "torch_npu", "mindspore", "tensorflow"}
# What runs inside the training process uses the framework, but only when it is used itself.
_FUSED = {path.relative_to(SOURCE).as_posix() for path in (SOURCE / "compat" / "fused").glob("*.py")}
INSIDE_TRAINING = {
    "doctor",
    "native",
    "simnpu",
    "collect",
    "profiler",
    "autoload",
    "dynamic_profile",
    "compat",
    "frameworks",
    "integrations",
    "watch",
}
# Imported by its neighbours only, once the framework is there.
AFTER_TORCH = {"frameworks/mindspore/dynamic.py", "simnpu/amp.py", "simnpu/hccl.py", "simnpu/npu.py", *_FUSED}


def imported(path: Path, *, at_once: bool = False) -> set[str]:
    """Names of what a module imports; with `at_once` only what is imported together with it."""
    names: set[str] = set()
    for node in tree(path).body if at_once else nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    layer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert layer in ALLOWED, f"{layer} is a new layer: say what it may import"
    for name in imported(path, at_once=True) if path.relative_to(SOURCE).as_posix() not in AFTER_TORCH else ():
        assert name.split(".")[0] not in FOREIGN, f"{path} imports {name} before it is needed"
    for name in imported(path):
        assert layer in INSIDE_TRAINING or name.split(".")[0] not in FOREIGN, f"{path} imports {name}"
        if name.startswith("stepscope."):
            other = name.split(".")[1]
            if (SOURCE / other).is_dir() or (SOURCE / f"{other}.py").is_file():
                assert other in {layer, "errors"} | ALLOWED[layer], f"{layer} must not import {other}"


def test_the_architecture_page_names_every_layer():
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text().split("## The tree is the pipeline")[1].split("\n## ")[0]
    described = set()
    for line in page.splitlines():
        if line.startswith("| `"):
            first, *_, last = line.strip("| ").split(" | ")
            layers = {name.rstrip("/").removesuffix(".py") for name in re.findall(r"`([\w./]+)`", first)} & set(ALLOWED)
            expected = set().union(*(ALLOWED[layer] for layer in layers)) - layers
            assert set(re.findall(r"`(\w+)`", last)) == expected, f"docs/architecture.md: what {first} may import"
            described |= layers
    assert described == {layer for layer in ALLOWED if not layer.startswith("__")}


def _is_broad(handler: ast.ExceptHandler) -> bool:
    """Whether a handler swallows everything; one that cleans up and raises again does not."""
    if isinstance(handler.type, ast.Name) and handler.type.id == "BaseException":
        return not any(isinstance(node, ast.Raise) and node.exc is None for node in ast.walk(handler))
    return handler.type is None or (isinstance(handler.type, ast.Name) and handler.type.id == "Exception")


def test_broad_excepts_stand_at_the_borders_only():
    broad = []
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node):
                broad.append(path.relative_to(SOURCE).as_posix())
    borders = [
        "analyser.py", "cli/__init__.py", "cli/info.py", "cluster/read/reading.py", "collect/guard.py", "query/child.py",
        "watch/watcher.py", "web/app.py",
    ]  # fmt: skip
    assert sorted(broad) == borders


def test_unit_tests_mirror_the_source():
    tests = Path(__file__).resolve().parent
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert sorted(str(folder) for folder in folders if not (SOURCE / folder).is_dir()) == []


def test_folders_can_be_read_at_a_glance():
    root = SOURCE.parents[1]
    folders: Counter[str] = Counter()
    for top in ("src", "native", "web/src", "tests", "benchmarks", "examples"):
        found = (path for path in (root / top).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        folders.update(path.parent.relative_to(root).as_posix() for path in found)
    # The page is built into one folder; its files are not read.
    built = "src/stepscope/web/static"
    assert {folder: count for folder, count in folders.items() if count > MOST_FILES and folder != built} == {}

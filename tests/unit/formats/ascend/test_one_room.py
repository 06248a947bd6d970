"""Each file has one declaration: no other module spells the titles of its columns, the keys of its objects or its arguments."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import polars as pl
import pytest
from source_trees import SOURCE, modules, nodes

from stepscope.formats.ascend import (
    flops,
    hardware,
    kernel_details,
    memory,
    operator_details,
    statistics,
    step_trace_time,
    task_time,
)
from stepscope.formats.ascend.cells import read_cells
from stepscope.formats.ascend.columns import Column, cells
from stepscope.formats.ascend.communication import keys
from stepscope.formats.ascend.metric_names import CSV_COLUMNS
from stepscope.formats.ascend.trace import args
from stepscope.formats.ascend.trace.args import Argument
from stepscope.render.csv_file import write_csv

ASCEND = "formats/ascend"
# The name of a layer of the timeline, which the file of steps has as a title.
LAYERS = {"Communication(Not Overlapped)"}
FILES = {
    "kernel_details.csv": kernel_details.COLUMNS,
    "task_time.csv": task_time.COLUMNS,
    "operator_details.csv": operator_details.COLUMNS,
    "step_trace_time.csv": step_trace_time.COLUMNS,
    "memory_record.csv": memory.RECORD,
    "operator_memory.csv": memory.ALLOCATION,
    "npu_module_mem.csv": memory.MODULE,
    "op_statistic.csv": statistics.OP,
    "api_statistic.csv": statistics.API,
    "l2_cache.csv": hardware.CACHE["l2"],
    "soc_pmu.csv": hardware.CACHE["tlb"],
    "pcie.csv": hardware.LINK["PCIe"],
    "hccs.csv": hardware.LINK["HCCS"],
    "nic.csv": hardware.PORT,
    "data_preprocess.csv": hardware.AICPU,
    "operator_flops.csv": flops.OPERATORS,
    "step_flops.csv": flops.STEPS,
}


@cache
def literals() -> dict[str, set[str]]:
    """Modules by each string that they spell."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found[node.value].add(path.relative_to(SOURCE).as_posix())
    return found


def declared(value: object) -> Iterator[str]:
    """The titles in what a module declares."""
    if isinstance(value, Column):
        yield from value.names
    elif isinstance(value, Argument):
        yield from filter(None, (value.name, value.older))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from declared(item)
    elif isinstance(value, dict):
        yield from declared(list(value.values()))


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value.values()


@cache
def rooms() -> dict[str, set[str]]:
    """Modules that declare a title. Words and names that a module may use for something else do not count as titles."""
    public = {name: value for name, value in vars(keys).items() if name.isupper() and not name.endswith("FILE")}
    titles = {
        f"{ASCEND}/communication/keys.py": {text for value in public.values() for text in texts(value)},
        f"{ASCEND}/metric_names.py": {title for columns in CSV_COLUMNS.values() for title in columns},
        f"{ASCEND}/trace/args.py": set(declared(list(vars(args).values()))),
    }
    for path in sorted((SOURCE / ASCEND).glob("*.py")):
        module = importlib.import_module(f"stepscope.formats.ascend.{path.stem}")
        titles.setdefault(f"{ASCEND}/{path.name}", set(declared(list(vars(module).values()))))
    found: dict[str, set[str]] = defaultdict(set)
    for place, owned in titles.items():
        for title in owned:
            if not title.isidentifier():
                found[title].add(place)
    return found


@pytest.mark.slow  # half a second and more
def test_no_other_module_spells_a_title():
    # Other families of formats have names of their own, and the page has headings.
    elsewhere = {
        f"{title!r} in {module}"
        for title, owners in rooms().items()
        for module in literals().get(title, set()) - owners
        if title not in LAYERS and (module.startswith(ASCEND) or not module.startswith(("formats/", "web/")))
    }
    assert elsewhere == set()


def test_details_of_a_slice_have_the_titles_of_the_declarations():
    assert {title for title in rooms() if "web/views/slice_args.py" in literals().get(title, set())} == set()


def test_the_declarations_are_found():
    assert len(rooms()) > 150
    assert rooms()["Accelerator Core"] == {"formats/ascend/kernel_details.py"}
    assert rooms()["Mix Block Dim"] == {"formats/ascend/kernel_details.py"}
    assert rooms()["Subtask Id"] >= {"formats/ascend/trace/args.py"}
    assert rooms()["Large Packet Ratio"] == {"formats/ascend/communication/keys.py"}


VALUES = {"text": "abc", "shapes": "1,2", "count": 7, "number": 2048.0, "time": 1_700_000_000_123_456_789}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("changed", [False, True], ids=["as-declared", "with-other-titles"])
def test_a_file_is_read_as_it_is_written(name, changed, tmp_path):
    columns = FILES[name]
    if changed:  # one declaration, so that a title changes in both directions
        columns = tuple(replace(item, title=f"New {item.title}") for item in columns)
    rows = pl.DataFrame({item.key: [VALUES[item.kind]] for item in columns})
    [path] = write_csv(tmp_path / name, rows, cells(columns, rows))
    quality: list[pl.DataFrame] = []
    found = read_cells([path], columns, quality=quality)
    assert {item.key: found[item.key].cast(rows.schema[item.key])[0] for item in columns} == rows.row(0, named=True)
    assert sum(frame["count"].sum() for frame in quality) == 0

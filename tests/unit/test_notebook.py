# SPDX-License-Identifier: Apache-2.0
"""In a notebook: what captures and tables look like, which names are completed, and the tutorial as a whole."""

from __future__ import annotations

import copy
import os
import tarfile
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import polars as pl
import pytest
from nbclient import NotebookClient

import stepscope
from raw_capture import capture
from stepscope.tables import ALL_TABLES, Tables

ROOT = Path(__file__).parents[2]
VOID = {"br", "img", "meta"}


class Balanced(HTMLParser):
    """Which elements and attributes there are; everything that is opened is closed."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {tag, *(f"{tag}[{name}]" for name, _ in attrs)}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def checked(html: str) -> Balanced:
    """One block without scripts or anything from elsewhere."""
    found = Balanced(html)
    assert not {name for name in found.names if name == "script" or name.endswith(("[src]", "[href]", "[onclick]"))}
    assert "url(" not in html
    assert "@import" not in html
    return found


def test_tables_and_captures_as_html(tmp_path: Path):
    folder = capture(tmp_path, name="a<b>_1_20260101000000000_ascend_pt")
    opened = stepscope.open(folder)
    shown = checked(opened._repr_html_())
    assert str(folder) in shown.texts
    assert "ops" in shown.texts
    assert "background:transparent" in opened._repr_html_()  # the colours of the notebook, light or dark
    assert "kernels" not in checked(opened.tables.replace(kernels=ALL_TABLES["kernels"].empty())._repr_html_()).texts
    assert repr(Tables({"steps": ALL_TABLES["steps"].conform(pl.DataFrame({"step": [1, 2]}))})) == "Tables(steps: 2)"


def test_the_verdict_is_light_and_dark(tmp_path: Path):
    html = stepscope.verdict(stepscope.open(capture(tmp_path)))._repr_html_()
    checked(html)
    assert "prefers-color-scheme:dark" in html


def test_names_of_tables_are_completed(tmp_path: Path):
    opened = stepscope.open(capture(tmp_path))
    for one in (opened, opened.tables):
        assert {"ops", "kernels", "facts"} <= set(dir(one))
        assert one._ipython_key_completions_() == list(ALL_TABLES)


@pytest.mark.parametrize(
    ("name", "said"),
    [("kernals", "did you mean kernels"), ("qqq", "tables are ops, "), ("opps", "did you mean ops")],
)
def test_a_misspelt_table_says_which_was_meant(tmp_path: Path, name: str, said: str):
    opened = stepscope.open(capture(tmp_path))
    for one, kind in ((opened, "Capture"), (opened.tables, "Tables")):
        with pytest.raises(AttributeError, match=f"{kind} has no table or attribute '{name}'; {said}"):
            getattr(one, name)


def test_looking_for_special_methods_reads_nothing(tmp_path: Path):
    opened = stepscope.open(capture(tmp_path))
    assert not hasattr(opened, "_repr_latex_")
    copy.copy(opened)
    assert "tables" not in vars(opened)
    assert opened.filled() == opened.tables.filled()  # what tables have, a capture has


@pytest.mark.slow  # a kernel is started and queries are asked
def test_the_tutorial_runs(tmp_path: Path):
    with tarfile.open(ROOT / "tests" / "captures" / "npu-ranks.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    notebook = nbformat.read(ROOT / "examples" / "tutorial.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # it is kept without results
    source = str(Path(stepscope.__file__).parents[1])
    environment = {
        **os.environ,
        "STEPSCOPE_TUTORIAL_RUN": str(tmp_path),
        "PYTHONPATH": source,
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute(env=environment)
    text = str([cell.outputs for cell in notebook.cells if cell.cell_type == "code"])
    assert "did you mean kernels" in text
    assert "class='sv'" in text
    assert "shape: (2, " in text

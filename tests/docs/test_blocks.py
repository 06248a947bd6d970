# SPDX-License-Identifier: Apache-2.0
"""Code in the documents: commands are those of the parsers, Python compiles and its names exist, examples can be pasted."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.cli import COMMANDS, module_of, parser

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)
# Pages beside the tree of users' pages (`en/`, `zh/`) have a twin next to them; of those without one somebody said why.
BOTH_IN_ONE = "has both languages in one"
WITHOUT_TWIN = {
    "glossary.md": BOTH_IN_ONE,
    "index.md": BOTH_IN_ONE,
}
_CHINESE = re.compile(r"\.zh(-CN)?\.md$")
BESIDE = sorted(
    name
    for name in (path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    if not name.startswith(("en/", "zh/")) and not _CHINESE.search(name) and name not in WITHOUT_TWIN
)


def blocks(path: Path) -> list[tuple[str, str]]:
    return [(found["info"].split(" ")[0], found["code"]) for found in _BLOCK.finditer(path.read_text(encoding="utf-8"))]


def every_block(*languages: str) -> list[pytest.param]:
    pages = sorted([*ROOT.glob("README*.md"), *DOCS.rglob("*.md")])
    return [
        pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}")
        for page in pages
        if "contributing" not in page.parts
        for number, (language, code) in enumerate(blocks(page))
        if language in languages
    ]


def commands(code: str) -> Iterator[list[str]]:
    """The words of each `stepscope` command in a block; lines that commands print are left out."""
    shown = re.sub(r"\\\n\s*", "", code)
    marked = "\n$ " in f"\n{shown}"
    for line in shown.splitlines():
        if "stepscope " not in line or (marked and not line.startswith("$ ")):
            continue
        text = line.removeprefix("$ ")
        inner = re.fullmatch(r'eval "\$\((.*)\)".*', text)
        text = inner[1] if inner else re.sub(r"\$\([^)]*\)", "0", text)
        lexer = shlex.shlex(text, posix=True, punctuation_chars="&;|")
        lexer.whitespace_split = True
        words = list(lexer)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        if words[:1] == ["stepscope"] and words[1:2] and words[1] in COMMANDS:
            end = next((place for place, word in enumerate(words) if set(word) <= set("&;|")), len(words))
            yield words[1:end]


@pytest.mark.parametrize("name", BESIDE)
def test_a_page_beside_the_tree_has_a_twin(name: str):
    english, chinese = DOCS / name, DOCS / name.replace(".md", ".zh.md" if name.startswith("rules/") else ".zh-CN.md")
    texts = [path.read_text(encoding="utf-8") for path in (english, chinese)]
    without = [_BLOCK.sub("", text) for text in texts]
    assert _HEADING.findall(without[0]) == _HEADING.findall(without[1])
    assert without[0].count("\n| ") == without[1].count("\n| ")
    assert _code(english) == _code(chinese)
    assert f"({chinese.name})" in texts[0]
    assert f"({english.name})" in texts[1]


CHINESE = sorted(
    name
    for name in (path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    if name.startswith("zh/") or _CHINESE.search(name)
)


@pytest.mark.parametrize("name", CHINESE)
def test_a_chinese_page_names_what_the_english_one_names(name: str):
    """Options, variables, files and functions are not translated: one that is missing is a sentence that is missing."""
    english = re.sub(r"^zh/", "en/", _CHINESE.sub(".md", name))
    assert _named(DOCS / english) - _named(DOCS / name) == set()


@pytest.mark.parametrize("name", [*CHINESE, "../README.zh-CN.md"])
def test_a_chinese_page_links_where_the_english_one_does(name: str):
    english = re.sub(r"^zh/", "en/", _CHINESE.sub(".md", name))
    assert _links(DOCS / english) == _links(DOCS / name)
    folder = (DOCS / name).parent
    links = [link for link in _raw_links(DOCS / name) if link.endswith(".md") and not _CHINESE.search(link)]
    twins = [link.removesuffix(".md") + ending for link in links for ending in (".zh-CN.md", ".zh.md")]
    assert [twin for twin in twins if (folder / twin).is_file() and not (folder / twin).samefile(DOCS / name)] == []


def _links(path: Path) -> list[str]:
    """Where a page leads, but for its twin, as if all pages were English ones: in the order of the letters."""
    own = _CHINESE.sub(".md", path.name)
    links = [_CHINESE.sub(".md", link).replace("zh/", "en/") for link in _raw_links(path)]
    return sorted(link for link in links if link != own)


def _raw_links(path: Path) -> list[str]:
    return re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", _BLOCK.sub("", path.read_text(encoding="utf-8")))


def _named(path: Path) -> set[str]:
    """What stands between backticks outside of blocks, but for placeholders and answers, which hold words of the language."""
    text = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    found = {re.sub(r"\s+", " ", name) for name in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)}
    return {name for name in found if "{" not in name and name[0] not in "])"}


def _code(path: Path) -> list[tuple[str, list[str]]]:
    """The blocks without comments and what commands print, which may be in the language of the page."""
    kept = []
    for info, code in blocks(path):
        lines = [re.sub(r"(?:^|\s+)# .*| --lang zh| ?(?<=input\()\".*\"", "", line) for line in code.splitlines()]
        if any(line.startswith("$ ") for line in lines):
            lines = [line for line in lines if line.startswith("$ ")]
        kept.append((info, [] if info == "text" else lines))
    return kept


def test_pages_without_a_twin_are_those_that_are_listed():
    assert [name for name in WITHOUT_TWIN if not (DOCS / name).is_file()] == []
    assert [name for name in WITHOUT_TWIN if (DOCS / name.replace(".md", ".zh-CN.md")).exists()] == []


@pytest.mark.parametrize("code", every_block("console", "bash", ""))
def test_commands_are_those_of_the_parsers(code: str):
    for words in commands(code):
        module = module_of(words[0])
        parser({words[0]: module}).parse_args(getattr(module, "rewrite", list)(words))


def test_commands_are_found_in_blocks():
    found = list(
        commands('$ A=1 stepscope top x --by op | head  # c\nstepscope info y\n$ eval "$(stepscope completion bash)" # c\n')
    )
    assert found == [["top", "x", "--by", "op"], ["completion", "bash"]]
    assert list(commands("stepscope info y\n")) == [["info", "y"]]


@pytest.mark.parametrize("code", every_block("python"))
def test_python_compiles_and_its_names_exist(code: str):
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "stepscope":
            if node.module in ("stepscope.mindspore", "stepscope.compat"):
                continue  # needs MindSpore; changes this process
            module = importlib.import_module(node.module or "")
            assert [name.name for name in node.names if not _has(module, name.name)] == []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "stepscope":
            assert hasattr(importlib.import_module("stepscope"), node.attr), node.attr


def _has(module: object, name: str) -> bool:
    if hasattr(module, name):
        return True
    importlib.import_module(f"{module.__name__}.{name}")  # type: ignore[attr-defined]
    return True


@pytest.mark.parametrize("ending", [".md", ".zh-CN.md"], ids=["en", "zh"])
def test_the_first_examples_do_not_make_the_job_wait(ending: str):
    pages = (ROOT / f"README{ending}", DOCS / f"usage{ending}")
    handlers = [call for page in pages for call in re.findall(r"tensorboard_trace_handler\(.+\)", page.read_text(encoding="utf-8"))]
    assert handlers
    assert [call for call in handlers if "async_mode=True" not in call] == []


# Questions that users had, with words that the paragraph with the answer has in both languages.
ANSWERS = {
    "two files differ": ("collecting", ("`step_trace_time.csv`", "`analysis.db`", "Free 900", "Stage 1000", "100")),
    "a step takes a second": ("collecting", ("`tensorboard_trace_handler`", "`step()`", "`async_mode=True`")),
    "nothing is recorded": ("dynamic-profile", ("`start_step`", "**0", "-1")),
    "nothing is recorded by MindSpeed": ("mindspeed", ("`start_step`", " 0", "-1")),
}


@pytest.mark.parametrize("ending", [".md", ".zh-CN.md"], ids=["en", "zh"])
@pytest.mark.parametrize(("page", "words"), ANSWERS.values(), ids=ANSWERS)
def test_what_users_asked_is_answered(page: str, words: tuple[str, ...], ending: str):
    paragraphs = (DOCS / f"{page}{ending}").read_text(encoding="utf-8").split("\n\n")
    assert any(all(word in paragraph for word in words) for paragraph in paragraphs)


@pytest.mark.parametrize("code", every_block("json"))
def test_json_is_json(code: str):
    for part in code.split("\n\n"):
        text = re.sub(r",?\s*…", "", part).strip()
        if text:
            json.loads(text)


@pytest.mark.parametrize("code", every_block("toml"))
def test_toml_is_toml(code: str):
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    assert tomllib.loads(code)


@pytest.mark.parametrize("code", every_block("bash"))
def test_shell_is_shell(code: str):
    subprocess.run(["bash", "-n"], input=code, text=True, check=True)


TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(torch.randn(16 * 16, 16)), batch_size=16):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder with a training script, and a shell in it that has the commands of an installation."""
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "train.py").write_text(TRAIN)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, module in (("stepscope", "-m stepscope"), ("torchrun", "-m torch.distributed.run"), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (folder / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ["PYTHONPATH"]]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "STEPSCOPE_MIN_FREE_BYTES": "0",
        "OMP_NUM_THREADS": "1",
        "LC_ALL": "C.UTF-8",
    }

    def run(line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


def pasted(path: Path, begins: str) -> list[str]:
    """The lines of the console block whose first command begins so, without what installs."""
    for language, code in blocks(path):
        lines = [line.removeprefix("$ ") for line in code.splitlines() if line.startswith("$ ")]
        lines = [line for line in lines if not line.startswith("pip install")]
        if language == "console" and lines and lines[0].startswith(begins):
            return lines
    raise AssertionError(f"{path} shows no {begins}")


@pytest.mark.slow  # starts torch in several processes
def test_the_three_lines_of_the_readme_can_be_pasted(shell):
    record, verdict = pasted(ROOT / "README.md", "STEPSCOPE_PROFILE=")
    in_chinese = pasted(ROOT / "README.zh-CN.md", "STEPSCOPE_PROFILE=")
    assert [line.partition("#")[0] for line in in_chinese] == [line.partition("#")[0] for line in (record, verdict)]
    shell(record)
    assert "ms" in shell(verdict).splitlines()[0]
    assert re.findall(r"^(\d+)\t", shell("stepscope top runs --by step"), re.MULTILINE) == ["10", "11", "12"]


@pytest.mark.slow  # starts torch
def test_the_page_about_the_memory_peak_can_be_pasted(shell):
    for line in pasted(DOCS / "en" / "howto" / "memory-peak.md", "STEPSCOPE_PROFILE="):
        shell(line)


@pytest.mark.slow  # starts torch
def test_the_page_about_fleets_can_be_pasted(shell):
    watch, show, *_serve = pasted(DOCS / "en" / "howto" / "watch-a-fleet.md", "STEPSCOPE_WATCH=1")
    shell(f"{watch.replace('WATCH=1', 'WATCH=rings=rings')}")
    assert shell(f"{show} --help")
    assert shell("stepscope top rings --by step --limit 0").count("\n") > 10

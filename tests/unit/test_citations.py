"""Comments cite sections of documents that are in this repository: `docs/formats/cann.md 4.5`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "pyproject.toml").is_file())
CODE = ("src", "native", "tests", "benchmarks", "web/src")
SUFFIXES = {".py", ".h", ".cpp", ".ts", ".tsx", ".css"}

# Folders whose comments still have the names that documents had before they came into the repository.
UNCONVERTED = (
    "native",
    "src/stepscope/collect",
    "src/stepscope/control",
    "src/stepscope/dynamic_profile",
    "src/stepscope/frameworks",
    "src/stepscope/profiler",
    "src/stepscope/simnpu",
    "tests/unit/collect",
    "tests/unit/frameworks",
    "tests/unit/profiler",
    "tests/unit/simnpu",
)
FORMER_NAME = re.compile(
    r"(?<![\w/-])(?:api|cann-raw|enums|framework-raw|mindspeed-profiler|mindspore|mstx-plugin|outputs|viewer)\.md\b"
)

_BREAK = r"\s+(?:(?:#|//|\*)\s*)?"  # a citation may go on in the next line of a comment
_SECTION = r"(?:R-)?\d+(?:\.\d+)*"
_NEXT = rf"(?:,{_BREAK}(?:and{_BREAK})?|{_BREAK}(?:to|and){_BREAK}|\s?[-–]\s?)"
CITATION = re.compile(rf"\b(docs/[\w./-]+\.md)\b(?:{_BREAK}({_SECTION}(?:{_NEXT}{_SECTION})*))?")
HEADING = re.compile(r"^#+ (\d+(?:\.\d+)*)\.? ", re.MULTILINE)
ROW = re.compile(r"^\| (R-\d+) \|", re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        pytest.param("(docs/formats/cann.md 4.5)", ["4.5"], id="one"),
        pytest.param("docs/formats/cann.md 4.1, 4.3.", ["4.1", "4.3"], id="list"),
        pytest.param("docs/formats/cann.md 1.1 to 1.4", ["1.1", "1.4"], id="range"),
        pytest.param("docs/formats/cann.md 1-3, 7 and 8)", ["1", "3", "7", "8"], id="ranges-in-a-list"),
        pytest.param("docs/formats/cann.md 3,\n    # 4.2", ["3", "4.2"], id="over-two-lines"),
        pytest.param("docs/formats/profiler-api.md R-13, R-14", ["R-13", "R-14"], id="rows"),
        pytest.param("(docs/formats/cann.md), 2 files", [], id="whole-document"),
    ],
)
def test_sections_of_a_citation(text: str, cited: list[str]) -> None:
    [match] = CITATION.finditer(text)
    assert _sections(match) == cited


def test_citations_resolve() -> None:
    broken = []
    for path, text in _code():
        for match in CITATION.finditer(text):
            place = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
            document = match[1]
            if not (ROOT / document).is_file():
                broken.append(f"{place}: {document} does not exist")
                continue
            broken += [f"{place}: {document} has no {section}" for section in _sections(match) if section not in _numbers(document)]
    assert not broken, "\n".join(broken)


def test_former_names_are_gone() -> None:
    left = [
        f"{path}:{number}: {line.strip()}"
        for path, text in _code()
        if not any(path.is_relative_to(folder) for folder in UNCONVERTED)
        for number, line in enumerate(text.splitlines(), 1)
        if FORMER_NAME.search(line)
    ]
    assert not left, "\n".join(["cite documents as docs/formats/README.md says:", *left])


def _code() -> Iterator[tuple[Path, str]]:
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path != Path(__file__).resolve() and path.is_file():
                yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def _sections(match: re.Match[str]) -> list[str]:
    return re.findall(_SECTION, match[2] or "")


@cache
def _numbers(document: str) -> set[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return {*HEADING.findall(text), *ROW.findall(text)}

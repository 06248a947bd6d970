# SPDX-License-Identifier: Apache-2.0
"""The Chinese twins of the reference pages that are made from the code; English ones come from the modules themselves.

    python docs/chinese_pages.py    writes docs/{tables,views,issues}.zh-CN.md and docs/formats/chips.zh-CN.md

A description without Chinese in `docs/descriptions.zh.toml` is a KeyError with its text.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stepscope.formats.cann import chip_reference
from stepscope.query import reference as views
from stepscope.tables import issue_reference
from stepscope.tables import reference as tables

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = Path(__file__).resolve().parent
WORDS = tomllib.loads((DOCS / "descriptions.zh.toml").read_text(encoding="utf-8"))


def pages() -> dict[Path, str]:
    """The text of each page by its path."""
    return {
        DOCS / "tables.zh-CN.md": tables.page(WORDS["columns"]),
        DOCS / "views.zh-CN.md": views.page(WORDS["columns"]),
        DOCS / "issues.zh-CN.md": issue_reference.page("zh"),
        DOCS / "formats" / "chips.zh-CN.md": _chips(chip_reference.page()),
    }


def _chips(english: str) -> str:
    """Its cells are few words that come again and again, so they are translated one by one."""
    words = WORDS["chips"]
    parts = []
    for paragraph in english.split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        if lines[0].startswith("| "):
            parts.append("\n".join(_row(line, words) for line in lines))
        elif lines[0].startswith("- "):
            parts.append("\n".join(words[line] for line in lines))
        elif lines[0] == "[中文](chips.zh-CN.md)":
            parts.append("[English](chips.md)")
        else:
            parts.append(words[" ".join(lines)])
    return "\n\n".join(parts) + "\n"


def _row(line: str, words: dict[str, str]) -> str:
    return "|".join(f" {_cell(cell.strip(), words)} " if cell else "" for cell in line.split("|"))


def _cell(text: str, words: dict[str, str]) -> str:
    return words.get(text, text).replace("`ts_track.data` for ", "`ts_track.data` 用于 ")


def main() -> None:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

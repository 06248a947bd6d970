# SPDX-License-Identifier: Apache-2.0
"""Reference pages made from the code, in both languages: commands from their parsers, environment variables from their list.

python docs/reference_pages.py    writes docs/{en,zh}/reference/{cli,environment}.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stepscope.cli import COMMANDS, module_of, parser
from stepscope.environment import VARIABLES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = Path(__file__).resolve().parent
# What the parsers say, in Chinese; a text that is missing is a KeyError with it.
CHINESE = tomllib.loads((DOCS / "commands.zh.toml").read_text(encoding="utf-8"))
LANGUAGES = ("en", "zh")
_GENERATED = "<!-- made by docs/reference_pages.py; do not edit -->"
_CLI = (
    (
        "Results go to the standard output, progress and notes to the standard error. Exit codes: 0 done, 1 a finding or problem,\n"
        "2 wrong usage, 3 a capture cannot be used, 70 a bug in stepscope.\n\n"
        "The same words mean the same in every command. `--rank` takes `3`, `0,3` or `0-7` and may be repeated, `--step` takes\n"
        "`7` or `7:9`, `--out` says where results go, `--json` prints JSON: a line for each row, or one document (`verdict`,\n"
        "`diff`, `cluster`). In JSON, CSV and columns `*_ns` are whole nanoseconds, `*_ms` milliseconds (six decimals), `mean_ms`\n"
        "the mean of calls, `share` and `*_share` fractions of 1, which drawn tables show in per cent, and `exposed_ms`\n"
        "communication that no computing hides."
    ),
    (
        "结果写到标准输出，进度和提示写到标准错误。退出码：0 完成，1 有结论或问题，2 用法错误，3 采集数据不可用，\n"
        "70 stepscope 的缺陷。`-h` 以英文给出同样的说明。\n\n"
        "各命令用词一致：`--rank` 接受 `3`、`0,3` 或 `0-7`，可重复；`--step` 接受 `7` 或 `7:9`；`--out` 指定结果位置；\n"
        "`--json` 输出 JSON：每行一个对象，或整个文档（`verdict`、`diff`、`cluster`）。JSON、CSV 和各列中，\n"
        "`*_ns` 为整数纳秒，`*_ms` 为毫秒（六位小数），`mean_ms` 为单次均值，`share` 与 `*_share` 为 0 到 1 的比例\n"
        "（终端表格中显示为百分数），`exposed_ms` 为未被计算掩盖的通信时间。"
    ),
)
_VARIABLES = ("Environment variables", "环境变量"), ("variable", "变量"), ("meaning", "含义")


def pages() -> dict[Path, str]:
    """The text of each page by its path."""
    made = {}
    for place, language in enumerate(LANGUAGES):
        folder = DOCS / language / "reference"
        made[folder / "cli.md"] = (
            "\n".join([("# Commands", "# 命令")[place], "", _GENERATED, "", _CLI[place], *_commands(language)]) + "\n"
        )
        title, name, meaning = (words[place] for words in _VARIABLES)
        rows = [f"| `{variable}` | {texts[place]} |" for variable, texts in sorted(VARIABLES.items())]
        made[folder / "environment.md"] = "\n".join(
            [f"# {title}", "", _GENERATED, "", f"| {name} | {meaning} |", "| --- | --- |", *rows]
        ) + "\n"  # fmt: skip
    return made


def _commands(language: str) -> list[str]:
    lines = []
    made = parser({name: module_of(name) for name in COMMANDS})
    (commands,) = (action for action in made._actions if isinstance(action, argparse._SubParsersAction))
    for name, sub in commands.choices.items():
        lines += [
            "",
            f"## stepscope {name}",
            "",
            _plain(sub.description or "", language),
            "",
            "```text",
            *_dedent(module_of(name).EXAMPLES),
            "```",
        ]
        lines += _options(sub, language)
    return lines


def _options(sub: argparse.ArgumentParser, language: str) -> list[str]:
    rows = []
    for action in sub._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                rows += [f"| `{word}` | |", *(row for row in _options(inner, language)[3:])]
        elif action.help != argparse.SUPPRESS and action.dest != "help":
            rows.append(f"| {_names(action)} | {_plain(action.help or '', language).replace('|', chr(92) + '|')} |")
    head = {"en": "| option | meaning |", "zh": "| 选项 | 含义 |"}[language]
    return ["", head, "| --- | --- |", *rows] if rows else []


def _names(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    value = " ".join(value) if isinstance(value, tuple) else str(value)
    if not action.option_strings:
        return f"`{value}`".replace("|", "\\|")
    flags = ", ".join(action.option_strings)
    return (f"`{flags}`" if action.nargs == 0 else f"`{flags} {value}`").replace("|", "\\|")


def _plain(text: str, language: str) -> str:
    """One paragraph of Markdown: words in angle brackets would be taken for markup."""
    words = " ".join(text.replace("%%", "%").split())
    if language == "zh" and words:
        words = CHINESE[words]
    return words.replace("<", "&lt;").replace("*", "\\*")


def _dedent(text: str) -> list[str]:
    return [line[2:] if line.startswith("  ") else line for line in text.rstrip("\n").splitlines()]


def main() -> None:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The reference page of all issues, made from the register: `python -m stepscope.tables.issue_reference`."""

from __future__ import annotations

from stepscope.tables.issues import REGISTER, SEVERITIES, Issue, Language, Severity

_INTRO = """# Issues

[中文](issues.zh-CN.md)

What table `quality` can say about a capture. `stepscope info PATH` shows it in words (`--lang zh` in Chinese), as do the
page, the report and `--json`; the table itself has the name, the severity, the unit and the count
([tables.md](tables.md#quality)).

Counts are added per unit, and only those of losses: "12 records, 1,000 bytes lost".

This page is generated from the register (`make docs`).
"""

_INTRO_ZH = """# 数据质量问题

[English](issues.md)

表 `quality` 对一份采集数据可能给出的说明。`stepscope info PATH` 用文字显示（`--lang zh` 为中文），页面、报告和 `--json` 也是；
表本身保存名称、严重程度、单位和数量（[tables.zh-CN.md](tables.zh-CN.md#quality)）。

数量按单位相加，且只加丢失的部分："丢失 12 条记录、1,000 字节"。

本页由登记表生成（`make docs`）。
"""

_SECTIONS: dict[Language, dict[Severity, tuple[str, str]]] = {
    "en": {
        "loss": ("Losses", "Recorded data that is not in the tables."),
        "warning": ("Warnings", "Reasons to look twice at a result."),
        "note": ("Notes", "Normal; they explain a number."),
    },
    "zh": {
        "loss": ("丢失", "记录了但不在表中的数据。"),
        "warning": ("警告", "需要再看一眼结果的原因。"),
        "note": ("说明", "正常情况；用来解释某个数值。"),
    },
}


def page(language: Language = "en") -> str:
    intro = _INTRO if language == "en" else _INTRO_ZH
    return "\n".join([intro, *(_section(severity, language) for severity in SEVERITIES)])


def _section(severity: Severity, language: Language) -> str:
    title, doc = _SECTIONS[language][severity]
    titles = "name | unit | said as | what to do" if language == "en" else "名称 | 单位 | 说法 | 怎么做"
    lines = [f"## {title}", "", doc, "", f"| {titles} |", "| --- | --- | --- | --- |"]
    lines += [_line(issue, language) for issue in REGISTER.values() if issue.severity == severity]
    return "\n".join([*lines, ""])


def _line(issue: Issue, language: Language) -> str:
    advice = issue.advice if language == "en" else issue.advice_zh
    return f"| `{issue.name}` | {issue.unit} | {issue.sentence_for(2, 2, language)} | {advice} |"


if __name__ == "__main__":
    print(page(), end="")

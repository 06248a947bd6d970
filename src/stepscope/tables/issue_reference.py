# SPDX-License-Identifier: Apache-2.0
"""The reference page of all issues, made from the register: `python -m stepscope.tables.issue_reference`."""

from __future__ import annotations

from stepscope.tables.issues import REGISTER, SEVERITIES, Issue, Severity

_INTRO = """# Issues

What table `quality` can say about a capture. `stepscope info PATH` shows it in words (`--lang zh` in Chinese), as do the
page, the report and `--json`; the table itself has the name, the severity, the unit and the count
([tables.md](tables.md#quality)).

Counts are added per unit, and only those of losses: "12 records, 1,000 bytes lost".

This page is generated from the register (`make docs`).
"""

_SECTIONS: dict[Severity, tuple[str, str]] = {
    "loss": ("Losses", "Recorded data that is not in the tables."),
    "warning": ("Warnings", "Reasons to look twice at a result."),
    "note": ("Notes", "Normal; they explain a number."),
}


def page() -> str:
    return "\n".join([_INTRO, *map(_section, SEVERITIES)])


def _section(severity: Severity) -> str:
    title, doc = _SECTIONS[severity]
    lines = [f"## {title}", "", doc, "", "| name | unit | said as | what to do |", "| --- | --- | --- | --- |"]
    lines += [_line(issue) for issue in REGISTER.values() if issue.severity == severity]
    return "\n".join([*lines, ""])


def _line(issue: Issue) -> str:
    sentences = f"{issue.sentence_for(2, 2)}<br>{issue.sentence_for(2, 2, 'zh')}"
    return f"| `{issue.name}` | {issue.unit} | {sentences} | {issue.advice}<br>{issue.advice_zh} |"


if __name__ == "__main__":
    print(page(), end="")

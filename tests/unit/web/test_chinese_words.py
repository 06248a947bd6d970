# SPDX-License-Identifier: Apache-2.0
"""Every sentence that a reader may meet has a Chinese twin: those written in the page, and those that the server answers with."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "web" / "src"
SERVER = ROOT / "src" / "stepscope" / "web"
WORDS = (PAGE / "words.ts", PAGE / "trace" / "words.ts")

# Answers to programs that call the routes, not to readers: bad addresses, bad bodies, other pages.
OF_PROGRAMS = {"app.py", "guard.py", "paging.py", "parameters.py", "problems.py", "row_filter.py", "sql.py"}
# Codes of errors, which stand before the sentence; and what names a thing that only a program asks for.
NO_SENTENCE = re.compile(r"[a-z_]+|no call #|take a number from cluster/timeline")
# In quotes, or between the tags of an element.
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|>[^<>{}\n=;]+<')


def translated() -> set[str]:
    return {key for path in WORDS for key in re.findall(r'^\s*"((?:[^"\\]|\\.)*)":', path.read_text(), re.MULTILINE)}


def is_sentence(text: str) -> bool:
    """Words in small letters behind one with a capital, or in front of a full stop; headings have capitals, styles neither."""
    plain = re.sub(r"\$\{[^}]*\}", "x", text).strip()
    return bool(
        re.match(r"[A-Z][a-z']*,? (?:[\w'’-]+,? )*[a-z]{2,},? [a-z]{2,}", plain)
        or re.search(r"(?:\b[a-z]{2,},? ){2,}[a-z]{2,}[.;:!?]", plain)
    )


@pytest.mark.parametrize("path", sorted(PAGE.rglob("*.ts*")), ids=lambda path: path.relative_to(PAGE).as_posix())
def test_sentences_of_the_page_are_in_the_dictionary(path: Path) -> None:
    if path in WORDS:
        return
    text = re.sub(r"^\s*(?://|\*|/\*\*).*$", "", path.read_text(), flags=re.MULTILINE)
    known = translated()
    found = [match[0][1:-1] for match in LITERAL.finditer(text)]
    # Code to copy has lines and comments; a frame that is broken is for who mends it.
    code = re.compile(r"^#|\\n|x-cols")
    left = [one for one in found if is_sentence(one) and one not in known and not code.search(one)]
    assert left == []


def literal(node: ast.expr | None) -> str | None:
    """Text as it is written; `#` for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "#" for part in node.values)  # type: ignore[misc]
    return None


def answers() -> list[tuple[str, str]]:
    """File and text of each title and each hint that the server's views answer with."""
    found = []
    for path in sorted(SERVER.rglob("*.py")):
        if path.name in OF_PROGRAMS or "html_report" in path.parts or path.name == "server.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("Problem", "missing", "CaptureError")
            ):
                continue
            hints = [one.value for one in node.keywords if one.arg in ("hint", "fix")]
            texts = [literal(one) for one in (*node.args[1:], *hints)]
            found += [(path.relative_to(SERVER).as_posix(), text) for text in texts if text and not NO_SENTENCE.fullmatch(text)]
    return found


def test_answers_of_the_server_are_in_the_dictionary() -> None:
    asked = answers()
    assert len(asked) > 40
    known = translated()
    # With a name or a number inside, the page shows the text as it comes.
    assert sorted({(path, text) for path, text in asked if "#" not in text and text not in known}) == []


def test_switches_that_were_missing_are_in_the_dictionary() -> None:
    from stepscope.web.problems import SWITCHES

    assert set(SWITCHES.values()) - translated() == set()

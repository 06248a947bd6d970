# SPDX-License-Identifier: Apache-2.0
"""Help and completion: quick, with examples, the same words in every command."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stepscope
from stepscope import analyser, top
from stepscope.cli import COMMANDS, main, module_of, options, parser
from stepscope.control import config
from stepscope.diff.align import LEVELS
from stepscope.formats import reader
from stepscope.share import convert, pack, publish, redact
from stepscope.verdict import finding, words
from stepscope.verdict.what_if import WITHOUT

SOURCE = Path(stepscope.__file__).parents[1]
HEAVY = ("polars", "pyarrow", "numpy", "torch", "rich", "orjson", "werkzeug")


def stepscope_command(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), **settings}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


def parsers() -> dict[str, argparse.ArgumentParser]:
    made = parser({name: module_of(name) for name in COMMANDS})
    (commands,) = (action for action in made._actions if isinstance(action, argparse._SubParsersAction))
    return dict(commands.choices)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_loads_nothing_heavy_and_shows_examples(command: str):
    script = (
        "import sys, stepscope.cli\n"
        "try: stepscope.cli.main(sys.argv[1:])\n"
        "except SystemExit as ended: assert not ended.code\n"
        f"print('LOADED', *sorted(set({HEAVY}) & set(sys.modules)))"
    )
    shown = stepscope_command("-c", script, *([command] if command else []), "-h", COLUMNS="200").stdout
    assert shown.splitlines()[-1] == "LOADED"
    examples = shown.split("\nexamples:\n")[1]
    assert re.search(rf"^  .*stepscope {command}", examples, re.MULTILINE)


@pytest.mark.slow  # half a second and more
def test_examples_can_be_parsed():
    """Every line of an example is a command with options that exist; what follows three blanks says what it does."""
    for name in COMMANDS:
        for line in module_of(name).EXAMPLES.splitlines():
            text = re.split(r" {3,}", line.strip())[0].split(" > ")[0]
            if text.startswith("eval"):
                text = text.split("$(")[1].split(")")[0]
            given = __import__("shlex").split(text)
            assert given[:2] == ["stepscope", name], line
            parsers()[name].parse_args(given[2:])


def test_the_words_of_options_are_those_of_their_owners():
    assert options.SOURCES == reader.SOURCES
    assert options.EXPORTS == analyser.EXPORTS
    assert options.LANGUAGES == words.LANGUAGES
    assert (*options.SEVERITIES, "info") == finding.SEVERITIES
    assert (*top.TOP, "rank") == options.GROUPINGS
    assert tuple(LEVELS) == options.LEVELS
    assert options.WITHOUT == WITHOUT
    assert options.PACKED == pack.WHAT
    assert options.REDACTIONS == redact.KINDS
    assert tuple(convert.FORMS) == options.FORMS
    assert tuple(publish.TRACKERS) == options.TRACKERS
    assert options.ACTIVITIES == config.ACTIVITIES


def test_an_option_means_the_same_everywhere():
    kinds: dict[str, set[tuple[object, ...]]] = {}
    for name, sub in parsers().items():
        for action in sub._actions:
            for flag in action.option_strings:
                if (name, flag) == ("cluster", "--json"):
                    continue  # schedulers want text and JSON of one analysis: it takes a file, or - for the output
                if flag in ("--json", "--rank", "--source", "--lang"):
                    metavar = action.metavar if flag == "--rank" else None
                    kinds.setdefault(flag, set()).add((action.nargs, metavar, tuple(action.choices or ())))
    assert {flag: len(kind) for flag, kind in kinds.items()} == dict.fromkeys(kinds, 1)
    assert set(kinds) == {"--json", "--rank", "--source", "--lang"}


def test_commands_have_the_same_line_everywhere():
    assert list(COMMANDS) == sorted(COMMANDS)
    folder = SOURCE / "stepscope" / "cli"
    files = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    assert set(COMMANDS) <= files | {path.stem for path in (folder / "share").glob("*.py")}


def complete(script: str, *given: str) -> list[str]:
    """What bash offers for the last word."""
    typed = " ".join(f"'{word}'" for word in ("stepscope", *given))
    asked = f'COMP_WORDS=({typed}); COMP_CWORD={len(given)}; _stepscope; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{asked}"], capture_output=True, text=True, check=True, cwd=SOURCE)
    assert done.stderr == ""
    return done.stdout.split()


def script_of(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def test_bash_completes_commands_options_words_and_files(capsys: pytest.CaptureFixture[str]):
    script = script_of("bash", capsys)
    assert complete(script, "ver") == ["verdict"]
    assert complete(script, "top", "--b") == ["--by"]
    assert complete(script, "top", "--by", "k") == ["kernel"]
    assert complete(script, "ctl", "x", "sta") == ["start", "status"]
    assert complete(script, "info", "step") == ["stepscope", "stepscope_searched_last.pth"]
    assert complete(script, "verdict", "--out", "step") == ["stepscope", "stepscope_searched_last.pth"]
    assert set(complete(script, "query", "--f")) == {"--file", "--format"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells_name_every_command_and_option(shell: str, capsys: pytest.CaptureFixture[str]):
    script = script_of(shell, capsys)
    for name, sub in parsers().items():
        assert re.search(rf"\b{name}\b", script)
        for action in sub._actions:
            for flag in action.option_strings:
                assert flag.lstrip("-") in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)

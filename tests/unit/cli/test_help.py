# SPDX-License-Identifier: Apache-2.0
"""Help and completion: quick, with examples, the same words in every command."""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
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


@pytest.mark.slow  # simulates a run
def test_small_files_of_a_run_are_read_without_what_only_others_need(tmp_path):
    simulated = stepscope_command("-m", "stepscope.cluster.simulate", str(tmp_path / "run"), "--form", "text", "--dp", "2")
    assert not simulated.returncode, simulated.stderr
    not_needed = (
        "pyarrow",
        "adbc_driver_manager",
        "stepscope.verdict",
        "stepscope.render.lines",
        "stepscope.export.cluster.database",
    )
    script = f"import sys, stepscope.cli; stepscope.cli.main(sys.argv[1:]); print('LOADED', *set({not_needed}) & set(sys.modules))"
    words = ("cluster", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--digests", str(tmp_path / "digests"))
    shown = stepscope_command("-c", script, *words)
    assert shown.stdout.splitlines()[-1] == "LOADED", shown.stderr
    assert len(list((tmp_path / "out").glob("*/*"))) == 4


@pytest.mark.parametrize(
    ("command", "given", "threads"),
    [
        pytest.param("cluster", None, "1", id="no-algebra"),
        pytest.param("cluster", "3", "3", id="as-the-user-says"),
        pytest.param("run", None, None, id="a-script-has-its-own"),
    ],
)
def test_threads_of_the_algebra_library(command, given, threads, tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "numpy")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", given or "")  # also where nothing is given: what the command sets is undone
    if not given:
        monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    seen = []
    monkeypatch.setattr(module_of(command), "run", lambda args: seen.append(os.environ.get("OPENBLAS_NUM_THREADS")) or 0)
    (tmp_path / "train.py").write_text("")
    assert main([command, str(tmp_path / "train.py")]) == 0
    assert seen == [threads]


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
                    continue  # schedulers want text and JSON of one analysis: it may name a file for the latter
                if flag in ("--json", "--rank", "--source", "--lang", "--step", "--limit", "--top"):
                    metavar = action.metavar if flag in ("--rank", "--step", "--limit", "--top") else None
                    default = action.default if flag in ("--lang", "--rank", "--step") else None
                    kinds.setdefault(flag, set()).add((action.nargs, metavar, default, tuple(action.choices or ())))
    assert {flag: len(kind) for flag, kind in kinds.items()} == dict.fromkeys(kinds, 1)
    assert set(kinds) == {"--json", "--rank", "--source", "--lang", "--step", "--limit", "--top"}


def test_commands_about_captures_choose_ranks_and_sources():
    """Where captures are named, ranks can be chosen; where steps matter to the answer, steps too."""
    flags = {name: {flag for action in sub._actions for flag in action.option_strings} for name, sub in parsers().items()}
    assert [name for name in ("analyse", "cluster", "convert", "diff", "info", "pack", "query", "slice", "top", "verdict", "whatif")
            if "--rank" not in flags[name]] == []  # fmt: skip
    assert [name for name in ("cluster", "diff", "slice", "top", "verdict", "whatif") if "--step" not in flags[name]] == []
    assert [name for name in ("analyse", "convert", "diff", "info", "query", "top", "verdict", "whatif")
            if "--source" not in flags[name]] == []  # fmt: skip


@pytest.mark.parametrize(
    ("given", "ranks"),
    [
        pytest.param(["--rank", "3"], [3], id="one"),
        pytest.param(["--rank", "0", "--rank", "3"], [0, 3], id="repeated"),
        pytest.param(["--ranks", "0,3"], [0, 3], id="list"),
        pytest.param(["--rank", "0-2,7"], [0, 1, 2, 7], id="range"),
        pytest.param(["--ranks", "all"], [], id="all"),
        pytest.param(["--rank", "4:6"], [4, 5, 6], id="range-with-a-colon"),
    ],
)
@pytest.mark.parametrize("command", ["top", "slice", "cluster", "info"])
def test_ranks_are_written_the_same_way_everywhere(command: str, given: list[str], ranks: list[int]):
    words = ["run", *given, *(["--out", "part"] if command == "slice" else [])]
    assert list(parsers()[command].parse_args(words).rank) == ranks


@pytest.mark.parametrize("wrong", ["", "x", "3-1", "1-", "-1", "1,,2"])
def test_what_is_no_rank_is_wrong_usage(wrong: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        parsers()["top"].parse_args(["run", f"--rank={wrong}"])
    assert ended.value.code == 2
    assert "range such as 0-7" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["top", "verdict", "whatif", "diff"])
def test_steps_are_written_the_same_way_everywhere(command: str):
    for given in (["--step", "7:9"], ["--steps", "7-9"]):
        assert parsers()[command].parse_args(["run", *given]).step == (7, 9)


def test_json_of_a_cluster_needs_no_file():
    assert parsers()["cluster"].parse_args(["run", "--json"]).json == "-"
    assert parsers()["cluster"].parse_args(["run", "--json", "out.json"]).json == "out.json"


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


def test_bash_completes_names_with_blanks_and_no_files_where_none_may_stand(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    script = script_of("bash", capsys)
    (tmp_path / "a run").mkdir()
    asked = f"cd '{tmp_path}'; COMP_WORDS=(stepscope info a); COMP_CWORD=2; _stepscope; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", f"{script}\n{asked}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["a run"]
    assert complete(script, "completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
def test_fish_completes_commands_options_words_and_files(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    script = tmp_path / "stepscope.fish"
    script.write_text(script_of("fish", capsys))
    (tmp_path / "verify").mkdir()

    def offered(line: str) -> list[str]:
        asked = ["fish", "--no-config", "-c", f"source {script}; cd {tmp_path}; complete -C'{line}'"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()

    assert offered("stepscope ver") == [f"verdict\t{COMMANDS['verdict']}"]
    assert f"ctl\t{COMMANDS['ctl']}" in offered("stepscope ")  # with its apostrophe
    assert [one.split("\t")[0] for one in offered("stepscope top --by ke")] == ["kernel"]
    assert offered("stepscope diff ver") == ["verify/"]
    assert [one.split("\t")[0] for one in offered("stepscope completion ")] == ["bash", "fish", "zsh"]


def _typed_in_zsh(line: str, script: Path, folder: Path) -> str:
    """What the line editor of zsh shows after this line and Tab."""
    place, terminal = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=terminal, stdout=terminal, stderr=terminal, cwd=folder, start_new_session=True,
        env={**os.environ, "TERM": "dumb", "HOME": str(folder), "COLUMNS": "200"},
    )  # fmt: skip
    os.close(terminal)

    def until(mark: str) -> str:
        text = ""
        while mark not in text:
            ready, _, _ = select.select([place], [], [], 60)
            assert ready, f"no {mark!r} in {text!r}"
            text += os.read(place, 4096).decode(errors="replace")
        return text

    try:
        # What is echoed holds no mark: the shell itself joins it.
        os.write(place, f"autoload -Uz compinit; compinit -u -D; source {script}; print S''ET\n".encode())
        until("SET")
        os.write(place, f"{line}\t\x01\x0bprint D''ONE\n".encode())  # then to the beginning, and all of it away
        return until("DONE")
    finally:
        shell.kill()
        shell.wait()
        os.close(place)


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
@pytest.mark.parametrize(
    ("typed", "whole"),
    [
        pytest.param("ver", "verdict", id="command"),
        pytest.param("top --by ke", "top --by kernel", id="word"),
        pytest.param("diff --ga", "diff --gate", id="option"),
        pytest.param("ctl verif", "ctl verify/", id="folder"),
        pytest.param("ctl verify sto", "ctl verify stop", id="action"),
    ],
)
def test_zsh_completes_in_a_terminal(typed: str, whole: str, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """A real line editor in a pseudo-terminal: Tab turns what is typed into the whole."""
    (tmp_path / "verify").mkdir()
    script = tmp_path / "stepscope.zsh"
    script.write_text(script_of("zsh", capsys))
    assert whole in _typed_in_zsh(f"stepscope {typed}", script, tmp_path)

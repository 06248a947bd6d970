# SPDX-License-Identifier: Apache-2.0
"""`stepscope completion`: print the completion script of a shell: commands, options, and the words that options take.

The script is made from the options themselves; print it again after an update.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

EXAMPLES = """\
  eval "$(stepscope completion bash)"                                              in ~/.bashrc
  eval "$(stepscope completion zsh)"                                               in ~/.zshrc, after compinit
  stepscope completion fish > ~/.config/fish/completions/stepscope.fish
"""


class Option(NamedTuple):
    """One option of a command."""

    names: tuple[str, ...]
    words: tuple[str, ...]  # that it takes; empty for anything
    takes_value: bool
    help: str


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=list(SHELLS), help="which shell")


def run(args: argparse.Namespace) -> int:
    from stepscope.cli import COMMANDS, module_of, parser

    made = parser({name: module_of(name) for name in COMMANDS})
    commands = {name: (COMMANDS[name], tuple(_options(sub))) for name, sub in _commands(made)}
    print(SHELLS[args.shell](commands), end="")
    return 0


Commands = dict[str, tuple[str, tuple[Option, ...]]]


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _options(parser: argparse.ArgumentParser) -> Iterator[Option]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            # Actions of a command (`ctl DIR start`): their words, and the options of all of them.
            yield Option((), tuple(action.choices), True, "")
            yield from {option.names: option for sub in action.choices.values() for option in _options(sub)}.values()
        elif action.help != argparse.SUPPRESS:
            text = (action.help or "").replace("%%", "%").split(" (default")[0]
            yield Option(tuple(action.option_strings), tuple(map(str, action.choices or ())), action.nargs != 0, text)


def _bash(commands: Commands) -> str:
    cases, values = [], []
    for name, (_, options) in commands.items():
        flags = " ".join(flag for option in options for flag in option.names)
        words = " ".join(word for option in options if not option.names for word in option.words)
        cases.append(f'    {name}) flags="{flags}"; words="{words}" ;;')
        for option in options:
            if option.words and option.names:
                values.append(
                    f'    {"|".join(f"{name}:{flag}" for flag in option.names)}) words="{" ".join(option.words)}"; only=1 ;;'
                )
            elif option.names and option.takes_value:
                values.append(f'    {"|".join(f"{name}:{flag}" for flag in option.names)}) words=""; flags=""; ;;')
    return "\n".join(
        [
            "_stepscope() {",
            '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"',
            '  local flags="" words="" only=""',
            '  if [ "$COMP_CWORD" -eq 1 ]; then',
            f'    COMPREPLY=($(compgen -W "{" ".join(commands)} --help --version" -- "$current"))',
            "    return",
            "  fi",
            '  case "$command" in',
            *cases,
            "  esac",
            '  case "$command:$before" in',
            *values,
            "  esac",
            '  if [ -n "$only" ]; then COMPREPLY=($(compgen -W "$words" -- "$current"))',
            '  elif [ "${current:0:1}" = "-" ]; then COMPREPLY=($(compgen -W "$flags" -- "$current"))',
            '  else COMPREPLY=($(compgen -W "$words" -- "$current") $(compgen -f -- "$current")); fi',
            "}",
            "complete -o filenames -F _stepscope stepscope",
            "",
        ]
    )


def _zsh(commands: Commands) -> str:
    lines = ["#compdef stepscope", "_stepscope() {", "  local -a commands", "  commands=("]
    lines += [f"    {_quoted(f'{name}:{line}')}" for name, (line, _) in commands.items()]
    lines += ["  )", "  if (( CURRENT == 2 )); then _describe command commands; return; fi", "  local command=$words[2]"]
    lines += ["  shift words; (( CURRENT-- ))", "  case $command in"]
    for name, (_, options) in commands.items():
        specs = []
        for option in options:
            value = f":value:({' '.join(option.words)})" if option.words else ":value:_files" if option.takes_value else ""
            text = option.help.replace("[", "(").replace("]", ")").replace(":", " ")
            specs += [_quoted(f"{flag}[{text}]{value}") for flag in option.names]
        words = [word for option in options if not option.names for word in option.words]
        rest = _quoted(f"*:word:({' '.join(words)})") if words else "'*:file:_files'"
        lines.append(f"    {name}) _arguments {' '.join([*specs, rest])} ;;")
    return "\n".join([*lines, "  esac", "}", "compdef _stepscope stepscope", ""])


def _fish(commands: Commands) -> str:
    lines = ["complete -c stepscope -f -n __fish_use_subcommand -l version", "complete -c stepscope -F"]
    for name, (line, options) in commands.items():
        lines.append(f"complete -c stepscope -f -n __fish_use_subcommand -a {name} -d {_quoted(line)}")
        seen = f"complete -c stepscope -n '__fish_seen_subcommand_from {name}'"
        for option in options:
            flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.names)
            words = f" -xa {_quoted(' '.join(option.words))}" if option.words else " -r" if option.takes_value and flags else ""
            if flags or words:
                lines.append(f"{seen} {flags}{words}" + (f" -d {_quoted(option.help)}" if option.help else ""))
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "").replace("\n", " ") + "'"


SHELLS: dict[str, Callable[[Commands], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}

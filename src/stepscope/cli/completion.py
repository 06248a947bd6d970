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
    """One option of a command, or, without names, what stands at its next place."""

    names: tuple[str, ...]
    words: tuple[str, ...]  # that it takes; empty for anything
    takes_value: bool
    help: str
    many: bool = False  # may stand there several times

    @property
    def placed(self) -> bool:
        return not self.names


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
            words, many = tuple(map(str, action.choices or ())), action.nargs not in (None, 0)
            yield Option(tuple(action.option_strings), words, action.nargs != 0, text, many)


def _takes_files(options: tuple[Option, ...]) -> bool:
    """Whether a path may stand in a command, beside its options."""
    return any(option.placed and not option.words for option in options)


def _bash(commands: Commands) -> str:
    cases, values = [], []
    for name, (_, options) in commands.items():
        flags = " ".join(flag for option in options for flag in option.names)
        words = " ".join(word for option in options if not option.names for word in option.words)
        settings = [f'flags="{flags}"', f'words="{words}"', *([] if _takes_files(options) else ["only=1"])]
        cases.append(f"    {name}) {'; '.join(settings)} ;;")
        for option in options:
            if option.words and option.names:
                values.append(
                    f'    {"|".join(f"{name}:{flag}" for flag in option.names)}) words="{" ".join(option.words)}"; only=1 ;;'
                )
            elif option.names and option.takes_value:
                values.append(f'    {"|".join(f"{name}:{flag}" for flag in option.names)}) words=""; flags=""; only="" ;;')
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
            '  if [ "${current:0:1}" = "-" ]; then COMPREPLY=($(compgen -W "$flags" -- "$current")); return; fi',
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            '  if [ -n "$only" ]; then return; fi',
            "  local IFS=$'\\n'  # names of files may hold blanks",
            '  COMPREPLY+=($(compgen -f -- "$current"))',
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
        placed = [option for option in options if option.placed]
        for number, option in enumerate(placed, 1):
            what = f"word:({' '.join(option.words)})" if option.words else "file:_files"
            specs.append(_quoted(f"{'*' if option.many else number}:{what}"))
        lines.append(f"    {name}) _arguments {' '.join(specs)} ;;")
    return "\n".join([*lines, "  esac", "}", "compdef _stepscope stepscope", ""])


def _fish(commands: Commands) -> str:
    lines = ["complete -c stepscope -f", "complete -c stepscope -n __fish_use_subcommand -l version"]
    for name, (line, options) in commands.items():
        lines.append(f"complete -c stepscope -n __fish_use_subcommand -a {name} -d {_quoted(line, escape=True)}")
        seen = f"complete -c stepscope -n '__fish_seen_subcommand_from {name}'"
        if _takes_files(options):
            lines.append(f"{seen} -F")
        for option in options:
            flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.names)
            words = f" -xa {_quoted(' '.join(option.words))}" if option.words else " -rF" if option.takes_value and flags else ""
            if flags or words:
                lines.append(f"{seen} {flags}{words}" + (f" -d {_quoted(option.help, escape=True)}" if option.help else ""))
    return "\n".join([*lines, ""])


def _quoted(text: str, *, escape: bool = False) -> str:
    """Text between single quotes; inside them fish knows an escaped one, other shells must leave them for a moment."""
    single = "\\'" if escape else "'\\''"
    return "'" + text.replace("'", single).replace("\n", " ") + "'"


SHELLS: dict[str, Callable[[Commands], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}

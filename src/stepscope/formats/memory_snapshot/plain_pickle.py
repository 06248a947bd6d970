# SPDX-License-Identifier: Apache-2.0
"""Plain data from a pickle, without running anything that it names.

A pickle is a program: some of its instructions import and call whatever they name. Only the instructions that make numbers,
texts, lists, tuples and dictionaries are carried out here; every other one ends the reading.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Any


class NotPlain(ValueError):
    """The pickle holds something else than plain data."""


class _Machine:
    """Stack and memo of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def pop_mark(self) -> list[Any]:
        place = self.marks.pop()
        items = self.stack[place:]
        del self.stack[place:]
        return items

    def put(self, number: int) -> None:
        self.memo[number] = self.stack[-1]

    def join(self, size: int) -> None:
        items = tuple(self.stack[-size:]) if size else ()
        if len(items) < size:
            raise IndexError
        del self.stack[len(self.stack) - size :]
        self.stack.append(items)

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise TypeError("items for something that is not a list")
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise TypeError("items for something that is not a dictionary")
        target.update(zip(items[::2], items[1::2], strict=True))

    def pop_two(self) -> list[Any]:
        value, key = self.stack.pop(), self.stack.pop()
        return [key, value]


Step = Callable[[_Machine, Any], object]


def _constant(make: Callable[[], Any]) -> Step:
    return lambda machine, _: machine.stack.append(make())


def _push(machine: _Machine, value: Any) -> None:
    machine.stack.append(value)


_STEPS: dict[str, Step] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "NONE": _constant(lambda: None),
    "NEWTRUE": _constant(lambda: True),
    "NEWFALSE": _constant(lambda: False),
    "EMPTY_DICT": _constant(dict),
    "EMPTY_LIST": _constant(list),
    "EMPTY_TUPLE": _constant(tuple),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"), _push),
    **dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES"), _push),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_mark())),
    "TUPLE1": lambda machine, _: machine.join(1),
    "TUPLE2": lambda machine, _: machine.join(2),
    "TUPLE3": lambda machine, _: machine.join(3),
    "LIST": lambda machine, _: machine.stack.append(machine.pop_mark()),
    "APPEND": lambda machine, _: machine.append([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.pop_mark()),
    "SETITEM": lambda machine, _: machine.set_items(machine.pop_two()),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_mark()),
    "POP": lambda machine, _: machine.stack.pop(),
    "POP_MARK": lambda machine, _: machine.pop_mark(),
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "MEMOIZE": lambda machine, _: machine.put(len(machine.memo)),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda machine, number: machine.put(number)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda machine, number: machine.stack.append(machine.memo[number])),
}


def plain_data(data: bytes) -> Any:
    """The value that a pickle of plain data describes.

    Raises:
        NotPlain: an instruction makes something else than plain data; nothing of it was run.
        ValueError: the bytes are not a whole pickle.
    """
    machine = _Machine()
    try:
        for instruction, argument, place in pickletools.genops(data):
            if instruction.name == "STOP":
                return machine.stack.pop()
            step = _STEPS.get(instruction.name)
            if step is None:
                named = f" {argument}" if isinstance(argument, str) else ""
                raise NotPlain(f"instruction {instruction.name}{named} at byte {place}")
            step(machine, argument)
    except (IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
        raise ValueError(f"damaged: {type(error).__name__} {error}") from error
    raise ValueError("no end")

"""Stacks from the Python calls around an operator."""

from __future__ import annotations

import polars as pl
from capture_rows import MAIN, op, ops, rows

from stepscope.analysis.link.call_stacks import stacks
from stepscope.analysis.link.capture import link
from stepscope.tables import TEXT, Facts, Tables


def call(name: str, start: int, end: int, tid: int = MAIN) -> dict[str, object]:
    return {"pid": 1, "tid": tid, "start_ns": start, "end_ns": end, "name": name, "kind": "python"}


def test_innermost_first_on_the_same_thread_only():
    table = ops(
        op("outside", 0, 5), op("in-main", 15, 16), op("in-step", 25, 26), op("again", 65, 66),
        op("elsewhere", 30, 31, tid=MAIN + 1),
    )  # fmt: skip
    pid = table["pid"][0]
    calls = rows("python_calls", *({**item, "pid": pid} for item in (
        call("t.py(1): main", 10, 90), call("t.py(5): step", 20, 50), call("a;b.py(7): f", 22, 40), call("t.py(5): step", 60, 70),
    )))  # fmt: skip
    found = dict(zip(table["name"].to_list(), stacks(table, calls).to_list(), strict=True))
    assert found == {
        "outside": None,
        "in-main": "t.py(1): main",
        "in-step": "a,b.py(7): f;t.py(5): step;t.py(1): main",
        "again": "t.py(5): step;t.py(1): main",
        "elsewhere": None,
    }


def test_only_stacks_of_operators_become_texts():
    """Most calls of a script hold no operator; a process keeps every text of a dictionary until it ends."""
    table = ops(op("mm", 15, 16))
    calls = [call("t.py(1): main", 10, 5000), *(call(f"t.py({line}): f{line}", 10 * line, 10 * line + 5) for line in range(2, 300))]
    calls = rows("python_calls", *({**item, "pid": table["pid"][0]} for item in calls))
    before = _texts_of_the_process("before")
    assert stacks(table, calls).to_list() == ["t.py(1): main"]
    assert _texts_of_the_process("after") - before < 5


def _texts_of_the_process(new: str) -> int:
    return int(pl.Series([f"never seen {new}"], dtype=TEXT).to_physical()[0])


def test_no_calls_no_stacks():
    assert stacks(ops(op("x", 0, 1)), rows("python_calls")).to_list() == [None]


def test_functions_of_c_are_no_frames_and_modules_are():
    table = ops(op("mm", 30, 31))
    calls = rows("python_calls", *({**item, "pid": table["pid"][0]} for item in (
        call("t.py(1): main", 10, 90), call("nn.Module: Linear_0", 20, 50), call("<built-in function linear>", 25, 40),
    )))  # fmt: skip
    assert stacks(table, calls).to_list() == ["nn.Module: Linear_0;t.py(1): main"]


def test_linking_gives_stacks_only_to_captures_that_were_made_with_them():
    """with_modules traces Python calls too, but asks for no stack of each operator."""
    table = ops(op("mm", 30, 31))
    calls = rows("python_calls", {**call("t.py(1): main", 10, 90), "pid": table["pid"][0]})
    for asked, expected in ((True, ["t.py(1): main"]), (False, [None])):
        tables = Tables({"ops": table, "python_calls": calls, "meta": Facts(with_stack=asked, with_modules=True).table()})
        assert link(tables).ops["stack"].to_list() == expected


def test_recorded_stacks_stay():
    table = ops(op("mm", 30, 31, stack="t.py(3): main"))
    calls = rows("python_calls", {**call("t.py(1): main", 10, 90), "pid": table["pid"][0]})
    tables = Tables({"ops": table, "python_calls": calls, "meta": Facts(with_stack=True).table()})
    assert link(tables).ops["stack"].to_list() == ["t.py(3): main"]

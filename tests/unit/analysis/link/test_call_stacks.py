"""Stacks from the Python calls around an operator."""

from __future__ import annotations

from capture_rows import MAIN, op, ops, rows

from stepscope.analysis.link.call_stacks import stacks


def call(name: str, start: int, end: int, tid: int = MAIN) -> dict[str, object]:
    return {"pid": 1, "tid": tid, "start_ns": start, "end_ns": end, "name": name, "kind": "python"}


def test_innermost_first_on_the_same_thread_only():
    table = ops(
        op("outside", 0, 5), op("in-main", 15, 16), op("in-step", 25, 26), op("again", 65, 66),
        op("elsewhere", 30, 31, tid=MAIN + 1),
    )  # fmt: skip
    pid = table["pid"][0]
    calls = rows("python_calls", *({**item, "pid": pid} for item in (
        call("main", 10, 90), call("step", 20, 50), call("a;b", 22, 40), call("step", 60, 70),
    )))  # fmt: skip
    found = dict(zip(table["name"].to_list(), stacks(table, calls).to_list(), strict=True))
    assert found == {
        "outside": None,
        "in-main": "main",
        "in-step": "a,b;step;main",
        "again": "step;main",
        "elsewhere": None,
    }


def test_no_calls_no_stacks():
    assert stacks(ops(op("x", 0, 1)), rows("python_calls")).to_list() == [None]

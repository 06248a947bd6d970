# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C inside code that ignores exceptions ends the command all the same."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time

import pytest

from stepscope.cli.process.interrupts import interrupts_kept

SCRIPT = """
import signal, sys, time
from stepscope import cli

def run(args):
    {ignored}
    print("still there", flush=True)
    time.sleep(60)
    return 0

cli.module_of("info").run = run
sys.exit(cli.main(["info", "."]))
"""
IGNORED = {
    # As at the end of an import.
    "callback": """
        import weakref
        thing = type("Thing", (), {})()
        watched = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
        del thing
    """,
    # It has Python code look at the type, and clears what that raises.
    "numpy": """
        import numpy
        numpy._core._internal.npy_ctypes_check = lambda cls: signal.raise_signal(signal.SIGINT)
        numpy.dtype(type("Thing", (), {}))
    """,
}


@pytest.mark.slow  # a process of its own
@pytest.mark.parametrize("ignored", IGNORED.values(), ids=IGNORED)
def test_an_interrupt_that_is_ignored_comes_again(ignored: str):
    began = time.monotonic()
    script = SCRIPT.replace("    {ignored}\n", textwrap.indent(textwrap.dedent(ignored), "    "))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 130, done.stderr
    assert done.stdout == "still there\n", "the first one was ignored"
    assert done.stderr == "interrupted; no incomplete files were left behind\n"
    assert time.monotonic() - began < 50


def test_an_interrupt_that_is_caught_does_not(monkeypatch):
    caught = []
    with interrupts_kept():
        for _ in range(3):
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                caught.append(1)
        time.sleep(0.1)
    assert caught == [1, 1, 1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_ignored_exceptions_are_told_as_before(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: told.append(ignored.exc_type))
    usual = sys.unraisablehook

    class Thing:
        def __del__(self):
            raise ValueError("of the user")

    with interrupts_kept():
        Thing()
    assert told == [ValueError]
    assert sys.unraisablehook is usual

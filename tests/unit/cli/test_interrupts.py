# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C inside a callback of the interpreter, which ignores exceptions, ends the command all the same."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

SCRIPT = """
import signal, sys, time, weakref
from stepscope import cli

class Thing:
    pass

def run(args):
    thing = Thing()
    watched = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))  # as at the end of an import
    del thing
    print("still there", flush=True)
    time.sleep(60)
    return 0

cli.module_of("info").run = run
sys.exit(cli.main(["info", "."]))
"""


@pytest.mark.slow  # a process of its own
def test_an_interrupt_inside_a_callback_is_not_lost():
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 130, done.stderr
    assert done.stdout == "still there\n", "the first one came inside the callback"
    assert done.stderr == "interrupted; no incomplete files were left behind\n"
    assert time.monotonic() - began < 50


def test_other_ignored_exceptions_are_told_as_before(monkeypatch):
    from stepscope.cli.process.interrupts import interrupts_kept

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

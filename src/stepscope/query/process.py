# SPDX-License-Identifier: Apache-2.0
"""Start the process that answers questions; it loads its engine while this one still looks for the captures."""

from __future__ import annotations

import contextlib
import os
import subprocess

from stepscope.child_process import command, environment


def start() -> subprocess.Popen[bytes]:
    """A process (`child.py`) that waits to be told which stores to open."""
    return subprocess.Popen(
        command("stepscope.query.child:main"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**environment(), "POLARS_MAX_THREADS": str(min(4, os.cpu_count() or 1))},
        start_new_session=True,  # Ctrl+C is for the program that asks
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was not sent yet
                pipe.close()

"""Commands that end soon keep freed memory, but not when the user said how much there is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASK = """
import os, sys
from stepscope.cli import main
main(sys.argv[1:])
print("kept" if "dirty_decay_ms:60000" in os.environ.get("_RJEM_MALLOC_CONF", "") else "given back")
"""


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["info", "nowhere"], "kept", id="ends-soon"),
        pytest.param(["analyse", "nowhere"], "kept", id="analyse"),
        pytest.param(["analyse", "nowhere", "--max-memory", "1g"], "given back", id="memory-is-short"),
        pytest.param(["analyse", "nowhere", "--max-memory=1g"], "given back", id="memory-is-short-in-one-word"),
    ],
)
def test_who_keeps_freed_memory(words, expected):
    # The engine, loaded here, has left its settings in the environment.
    unset = {name: value for name, value in os.environ.items() if name != "_RJEM_MALLOC_CONF"}
    done = subprocess.run([sys.executable, "-c", ASK, *words], capture_output=True, text=True, check=True, env=unset)
    assert done.stdout.split("\n")[-2] == expected

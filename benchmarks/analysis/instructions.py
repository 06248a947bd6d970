# SPDX-License-Identifier: Apache-2.0
"""Instructions that recording adds to each operator, counted by callgrind: repeatable where times are not.

    python -m benchmarks.analysis.instructions [--most 3000]

Needs valgrind with its headers and a C compiler. With `--most` the exit code is 1 when any switches add more. Instructions of all
threads count, those of the writer too. The same loop is run under torch.profiler.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

OPERATORS = 2_000
_SHIM = """#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void stop(const char *label) { CALLGRIND_DUMP_STATS_AT(label); CALLGRIND_STOP_INSTRUMENTATION; }
"""
_DUMP = re.compile(r"desc: Trigger: Client Request: (.+)[\s\S]*?\n(?:summary|totals): (\d+)")


def inside() -> None:
    """Under valgrind: one dump for the plain loop, and one for each recorder and its switches."""
    import torch

    from benchmarks.observer import SWITCHES, Ours, Theirs, tiny_operators
    from stepscope.collect.tiers.observer import load_observer

    torch.set_num_threads(1)
    shim = ctypes.CDLL(os.environ["STEPSCOPE_BENCH_SHIM"])
    observer, work = load_observer(), tiny_operators(OPERATORS)

    def count(label: str) -> None:
        work()
        shim.start()
        work()
        shim.stop(label.encode())

    count("plain loop")
    for name, switches in SWITCHES.items():
        with Ours(observer, switches):
            count(f"ours, {name}")
        with Theirs(switches):
            count(f"torch.profiler, {name}")


def counts(folder: Path) -> dict[str, int]:
    """Instructions per dump."""
    found = {}
    for path in folder.glob("callgrind.out.*"):
        match = _DUMP.search(path.read_text())
        if match:
            found[match[1]] = int(match[2])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, help="instructions per operator that ours may add")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside()
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "shim.c").write_text(_SHIM)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(folder / "shim.so"), str(folder / "shim.c")], check=True)
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/callgrind.out.%p"]
        subprocess.run(
            [*command, sys.executable, "-m", "benchmarks.analysis.instructions", "--inside"],
            env={**os.environ, "STEPSCOPE_BENCH_SHIM": str(folder / "shim.so"), "PYTHONMALLOC": "malloc"},
            stderr=subprocess.DEVNULL,
            check=True,
        )
        found = counts(folder)
    plain = found.pop("plain loop")
    print(f"plain loop: {plain / OPERATORS:,.0f} instructions per operator")
    extra = {label: (total - plain) / OPERATORS for label, total in sorted(found.items())}
    for label, added in extra.items():
        print(f"{label}: {added:+,.0f}")
    ours = [added for label, added in extra.items() if label.startswith("ours")]
    return int(args.most is not None and max(ours) > args.most)


if __name__ == "__main__":
    sys.exit(main())

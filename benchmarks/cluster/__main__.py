# SPDX-License-Identifier: Apache-2.0
"""Time and memory of `stepscope cluster` on simulated runs, beside msprof-analyze on the same files.

    python -m benchmarks.cluster [--ranks 256 1024] [--digests 10000] [--peer-python PYTHON]

`--peer-python` names an interpreter with msprof-analyze (`make test` makes one in .venv-peers). One step of text captures, about
20 calls and 70 kernels per rank; everything is written. `--digests` are ranks of which only digests exist (0: none).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import measure

HERE = Path(__file__).resolve().parent
PEER = HERE.parents[1] / "tests" / "peers" / "cluster.py"
STEPSCOPE = [sys.executable, "-m", "stepscope", "cluster"]
SIMULATE = [sys.executable, "-m", "stepscope.cluster.simulate"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="*", default=[256, 1024], help="sizes of runs; multiples of 8")
    parser.add_argument("--digests", type=int, default=10_000, help="ranks of which only digests exist")
    parser.add_argument("--peer-python", type=Path, default=HERE.parents[1] / ".venv-peers" / "bin" / "python")
    args = parser.parse_args()
    table = Table("what", "wall s", "CPU s", "memory MB", "msprof-analyze", "ratio (wall, CPU)")
    for ranks in args.ranks:
        with tempfile.TemporaryDirectory() as folder:
            _captures(table, ranks, Path(folder), args.peer_python)
    if args.digests:
        with tempfile.TemporaryDirectory() as folder:
            measure.run([*SIMULATE, folder, "--tp", "2", "--pp", "8", "--dp", str(args.digests // 16), "--steps", "1", *_SMALL])
            _row(table, f"{args.digests // 16 * 16:,} ranks, digests to findings", measure.run([*STEPSCOPE, folder]))
    Console(width=140).print(table)
    return 0


_SMALL = ("--micro", "4", "--layers", "1")


def _captures(table: Table, ranks: int, folder: Path, peer: Path) -> None:
    root = folder / "run"
    layout = ["--tp", "2", "--pp", "4", "--dp", str(ranks // 8), "--steps", "1", *_SMALL]
    measure.run([*SIMULATE, str(root), "--form", "text", *layout])
    (root / "truth.json").unlink()
    digests = folder / "digests"
    whole = measure.run([*STEPSCOPE, str(root), "--out", str(folder / "ours"), "--digests", str(digests)])
    theirs = measure.run([str(peer), str(PEER), "all", str(root), str(folder / "theirs")]) if peer.is_file() else None
    _row(table, f"{ranks:,} text ranks x 1 step, everything written", whole, theirs)
    _row(table, f"{ranks:,} ranks, digests to findings", measure.run([*STEPSCOPE, str(digests)]))


def _row(table: Table, what: str, cost: measure.Cost, peer: measure.Cost | None = None) -> None:
    beside = f"{peer.seconds:.1f} s, {peer.cpu_seconds:.1f} CPU s, {peer.peak_bytes / 1e6:.0f} MB" if peer else ""
    ratio = f"{peer.seconds / cost.seconds:.0f}x, {peer.cpu_seconds / cost.cpu_seconds:.0f}x" if peer else ""
    table.add_row(what, f"{cost.seconds:.1f}", f"{cost.cpu_seconds:.1f}", f"{cost.peak_bytes / 1e6:.0f}", beside, ratio)


if __name__ == "__main__":
    sys.exit(main())

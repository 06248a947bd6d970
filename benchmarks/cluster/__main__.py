# SPDX-License-Identifier: Apache-2.0
"""Time and memory of `stepscope cluster` on simulated runs, beside msprof-analyze on the same files.

    python -m benchmarks.cluster [--ranks 256 1024] [--digests 10000] [--peer-python PYTHON] [--peer-most 256]

`--peer-python` names an interpreter with msprof-analyze (`make test` makes one in .venv-peers). One step of text captures, about
20 calls and 70 kernels per rank; everything is written. msprof-analyze reads the metadata of all ranks again for every group and
step, so larger runs than `--peer-most` are not given to it. `--digests` are ranks of which only digests exist (0: none).
Bytecode is kept, as of an installed package. All files and the JSON are compared between one and eight workers.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

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
    parser.add_argument("--peer-most", type=int, default=256, help="largest run that msprof-analyze is asked for")
    args = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    measure.run([*STEPSCOPE, "--help"])
    for ranks in args.ranks:
        with tempfile.TemporaryDirectory() as folder:
            _captures(ranks, Path(folder), args.peer_python if ranks <= args.peer_most else None)
    if args.digests:
        with tempfile.TemporaryDirectory() as folder:
            measure.run([*SIMULATE, folder, "--tp", "2", "--pp", "8", "--dp", str(args.digests // 16), "--steps", "1", *_SMALL])
            _show(f"{args.digests // 16 * 16:,} ranks, digests to findings", measure.run([*STEPSCOPE, folder]))
    return 0


_SMALL = ("--micro", "4", "--layers", "1")


def _captures(ranks: int, folder: Path, peer: Path | None) -> None:
    root = folder / "run"
    layout = ["--tp", "2", "--pp", "4", "--dp", str(ranks // 8), "--steps", "1", *_SMALL]
    measure.run([*SIMULATE, str(root), "--form", "text", *layout])
    (root / "truth.json").unlink()
    digests = folder / "digests"
    whole = measure.run([*STEPSCOPE, str(root), "--out", str(folder / "ours"), "--digests", str(digests)])
    theirs = measure.run([str(peer), str(PEER), "all", str(root), str(folder / "theirs")]) if peer and peer.is_file() else None
    _show(f"{ranks:,} text ranks x 1 step, everything written", whole, theirs)
    _show(f"{ranks:,} ranks, digests to findings", measure.run([*STEPSCOPE, str(digests)]))
    one, eight = (_written(root, folder / f"workers{workers}", workers) for workers in (1, 8))
    print(
        f"{ranks:,} ranks, 1 and 8 workers: {'the same bytes' if one == eight else 'OTHER BYTES'} in {len(one)} files", flush=True
    )


def _written(root: Path, folder: Path, workers: int) -> dict[str, bytes]:
    """What a run with so many workers writes, by name."""
    folder.mkdir()
    files = ["--out", str(folder / "files"), "--digests", str(folder / "digests"), "--json", str(folder / "run.json")]
    measure.run([*STEPSCOPE, str(root), "--no-cache", "--workers", str(workers), *files])
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _show(what: str, cost: measure.Cost, peer: measure.Cost | None = None) -> None:
    print(f"{what}: {_text(cost)}", flush=True)
    if peer is not None:
        shorter = f"{peer.seconds / cost.seconds:.0f}x wall, {peer.cpu_seconds / cost.cpu_seconds:.0f}x CPU"
        print(f"    msprof-analyze: {_text(peer)}; {shorter}", flush=True)


def _text(cost: measure.Cost) -> str:
    return f"{cost.seconds:.1f} s, {cost.cpu_seconds:.1f} CPU s, {cost.peak_bytes / 1e6:.0f} MB"


if __name__ == "__main__":
    sys.exit(main())

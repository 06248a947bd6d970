# SPDX-License-Identifier: Apache-2.0
"""Time and memory of an analysis by size of the capture, beside the reference analyser in the same run.

    python -m benchmarks.analysis.sizes [--ops 10000 …] [--runs 3] [--python PYTHON] [--reference SOURCES] [--generator SCRIPT]

Both tools write the json, csv and both databases of the same capture, which is what the documents call `text`, ours the store
besides; the reference is run without its databases, too. Runs alternate, and every run starts from a fresh copy. `--python` names
an interpreter with an installed wheel (`make bench` makes one). `--reference` is a folder with the Python files of a torch-npu
wheel: `python tests/vendor/fetch.py FOLDER 2.13.0`, then FOLDER/2.13.0; it needs torch in the interpreter of this script. Its
steps that call `msprof` are left out (reference.py), so the captures must hold what that command writes: `--generator` names a
script that writes such captures, called with --out, --ops and --db. Without one the captures have no device, and the reference
is not measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import framework_capture, measure

HERE = Path(__file__).resolve().parent
OPS = (10_000, 100_000, 300_000, 1_000_000)
MANY = 8  # captures of the smallest size, analysed with one command
MOST_RUNS_OPS = 300_000  # larger ones are run once
OUTPUT = "ASCEND_PROFILER_OUTPUT"


def generate(folder: Path, ops: int, script: Path | None) -> Path:
    """A capture of so many operators."""
    if script is None:
        return framework_capture.capture(folder, ops=ops, steps=10)
    subprocess.run(
        [sys.executable, str(script), "--out", str(folder), "--ops", str(ops), "--db"], check=True, stdout=subprocess.DEVNULL
    )
    return next(folder.glob("*_ascend_pt"))


def copied(capture: Path, folder: Path) -> Path:
    """A new copy whose files may be deleted; the data itself is shared, but for databases, which the reference writes on."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(capture, folder / capture.name, copy_function=os.link)
    for path in (folder / capture.name).rglob("*.db"):
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    return folder / capture.name


def commands(args: argparse.Namespace) -> dict[str, list[str]]:
    ours = {"stepscope": [args.python, "-m", "stepscope", "analyse", "--export", "text"]}
    if args.reference and args.generator:
        for tool, exports in (("reference", "text,db"), ("reference without databases", "text")):
            ours[tool] = [sys.executable, str(HERE / "reference.py"), str(args.reference), exports]
    return ours


def runs(args: argparse.Namespace, data: Path, ops: int) -> dict[str, list[measure.Cost]]:
    """The costs of each tool, run in turn; says which files only the reference wrote."""
    capture = generate(data / f"source-{ops}", ops, args.generator)
    costs: dict[str, list[measure.Cost]] = {tool: [] for tool in commands(args)}
    written: dict[str, Path] = {}
    for _ in range(args.runs if ops <= MOST_RUNS_OPS else 1):
        for tool, command in commands(args).items():
            target = copied(capture, data / f"{tool}-{ops}")
            costs[tool].append(measure.run([*command, str(target)]))
            written[tool] = target / OUTPUT
    if "reference" in written and (missing := missing_files(written["stepscope"], written["reference"])):
        print(f"{ops:,} operators: only the reference wrote {', '.join(missing)}", file=sys.stderr)
    for folder in (capture.parent, *(path.parents[1] for path in written.values())):
        shutil.rmtree(folder)
    return costs


def missing_files(ours: Path, theirs: Path) -> list[str]:
    """Files with content that only the reference wrote."""
    return sorted(path.name for path in theirs.iterdir() if path.stat().st_size and not (ours / path.name).is_file())


def many(args: argparse.Namespace, data: Path) -> tuple[list[measure.Cost], int]:
    """The costs of several small captures in one command."""
    source = data / "source-many"
    capture = generate(source, args.ops[0], args.generator)
    costs = []
    for _ in range(args.runs):
        folder = data / "many"
        shutil.rmtree(folder, ignore_errors=True)
        for number in range(MANY):
            copied(capture, folder / "one")
            (folder / "one" / capture.name).rename(folder / capture.name.replace("_ascend_pt", f"{number}_ascend_pt"))
        (folder / "one").rmdir()
        costs.append(measure.run([*commands(args)["stepscope"], str(folder)]))
    shutil.rmtree(folder)
    shutil.rmtree(source)
    return costs, args.ops[0]


def spread(values: Sequence[float], unit: str = "") -> str:
    least, most = min(values), max(values)
    return f"{least:.2f}{unit}" if most - least < 0.005 else f"{least:.2f}–{most:.2f}{unit}"


def row(what: str, tool: str, costs: Sequence[measure.Cost], against: Sequence[measure.Cost] = ()) -> Iterator[str]:
    yield what
    yield tool
    yield spread([cost.seconds for cost in costs])
    yield spread([cost.cpu_seconds for cost in costs])
    yield f"{max(cost.peak_bytes for cost in costs) / 1e6:,.0f}"
    if against:
        for name in ("seconds", "cpu_seconds"):
            yield f"{min(getattr(cost, name) for cost in costs) / min(getattr(cost, name) for cost in against):.1f}×"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, nargs="+", default=list(OPS))
    parser.add_argument("--runs", type=int, default=3, help="of sizes up to 300,000; larger ones are run once")
    parser.add_argument("--python", default=sys.executable, help="interpreter with stepscope installed")
    parser.add_argument("--reference", type=Path, help="unpacked Python files of a torch-npu wheel")
    parser.add_argument("--generator", type=Path, help="script that writes captures with the files of msprof")
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "bench-data")
    args = parser.parse_args()
    args.reference, args.generator = (path if path and path.exists() else None for path in (args.reference, args.generator))
    table = Table(title="analysis by size of the capture", title_justify="left")
    for name in ("operators", "tool", "s", "CPU s", "peak MB", "of ours", "of our CPU"):
        table.add_column(name, justify="left" if name in ("operators", "tool") else "right")
    shutil.rmtree(args.data, ignore_errors=True)
    args.data.mkdir(parents=True)
    try:
        for ops in args.ops:
            costs = runs(args, args.data, ops)
            for tool, found in costs.items():
                table.add_row(*row(f"{ops:,}", tool, found, costs["stepscope"] if tool != "stepscope" else ()))
        found, ops = many(args, args.data)
        table.add_row(*row(f"{MANY} × {ops:,}", "stepscope", found))
    finally:
        shutil.rmtree(args.data, ignore_errors=True)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    load = os.getloadavg()[0]
    note = "" if "reference" in commands(args) else "; the reference was not measured (see --reference and --generator)"
    print(f"{len(os.sched_getaffinity(0))} cores, load at the end {load:.1f}; least and most of {args.runs} runs{note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

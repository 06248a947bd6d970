# SPDX-License-Identifier: Apache-2.0
"""Time and memory of an analysis by size of the capture, beside the reference analyser in the same run.

    python -m benchmarks.analysis.sizes [--ops 10000 …] [--runs 3] [--python PYTHON] [--reference SOURCES] [--generator SCRIPT]

Both tools write the json, csv and both databases of the same capture, which is what the documents call `text`, ours the store
besides; with `--without-databases` the reference is run without its databases, too. Every run starts from a fresh copy.

All runs of ours come first, those of the reference after them, by size; above 300,000 operators the reference runs twice. In
turns, ours paid for what the reference leaves behind: it frees up to 14 GB, a virtual machine gives them back to its host, and
whoever comes next waits for every page of memory and of files again (at a million operators 7.2 s instead of 5.1 to 5.7 s). The
first run of each tool still pays for memory that nobody has used yet; ratios are of the shortest runs.

`--python` names an interpreter with an installed wheel (`make bench` makes one). `--reference` is a folder with the Python files
of a torch-npu wheel: `python tests/vendor/fetch.py FOLDER 2.13.0`, then FOLDER/2.13.0; it needs torch in the interpreter of this
script. Its steps that call `msprof` are left out (reference.py), so the captures must hold what that command writes: `--generator`
names a script that writes such captures, called with --out, --ops and --db. Without one the captures have no device, and the
reference is not measured.
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
MOST_RUNS_OPS = 300_000  # above, each run of the reference takes minutes
FEW_RUNS = 2
OURS = "stepscope"
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
    """What to measure, ours first."""
    found = {OURS: [args.python, "-m", "stepscope", "analyse", "--export", "text"]}
    if args.reference and args.generator:
        exports = {"reference": "text,db"} | ({"reference without databases": "text"} if args.without_databases else {})
        for tool, files in exports.items():
            found[tool] = [sys.executable, str(HERE / "reference.py"), str(args.reference), files]
    return found


def measured(args: argparse.Namespace, data: Path) -> dict[int, dict[str, list[measure.Cost]]]:
    """The costs by size and tool; says which files only the reference wrote."""
    captures = {ops: generate(data / f"source-{ops}", ops, args.generator) for ops in args.ops}
    costs: dict[int, dict[str, list[measure.Cost]]] = {ops: {} for ops in args.ops}
    written: dict[tuple[int, str], set[str]] = {}
    for tool, command in commands(args).items():
        for ops, capture in captures.items():
            target = data / "target"
            count = args.runs if tool == OURS or ops <= MOST_RUNS_OPS else min(args.runs, FEW_RUNS)
            costs[ops][tool] = [measure.run([*command, str(copied(capture, target))]) for _ in range(count)]
            written[ops, tool] = files_with_content(target / capture.name / OUTPUT)
            shutil.rmtree(target)
    for ops in args.ops:
        if missing := written.get((ops, "reference"), set()) - written[ops, OURS]:
            print(f"{ops:,} operators: only the reference wrote {', '.join(sorted(missing))}", file=sys.stderr)
    for capture in captures.values():
        shutil.rmtree(capture.parent)
    return costs


def files_with_content(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.stat().st_size}


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
        costs.append(measure.run([*commands(args)[OURS], str(folder)]))
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
    parser.add_argument("--runs", type=int, default=3, help="of each tool; of the reference two at most above 300,000 operators")
    parser.add_argument("--python", default=sys.executable, help="interpreter with stepscope installed")
    parser.add_argument("--reference", type=Path, help="unpacked Python files of a torch-npu wheel")
    parser.add_argument("--without-databases", action="store_true", help="run the reference without its databases, too")
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
        of_many, least = many(args, args.data)
        for ops, costs in measured(args, args.data).items():
            for tool, found in costs.items():
                table.add_row(*row(f"{ops:,}", tool, found, costs[OURS] if tool != OURS else ()))
        table.add_row(*row(f"{MANY} × {least:,}", OURS, of_many))
    finally:
        shutil.rmtree(args.data, ignore_errors=True)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    load = os.getloadavg()[0]
    note = f"{len(os.sched_getaffinity(0))} cores, load at the end {load:.1f}; least and most of {args.runs} runs"
    if "reference" in commands(args):
        note += ", those of stepscope first, of the reference two at most above 300,000 operators; ratios of the shortest runs"
    else:
        note += "; the reference was not measured (see --reference and --generator)"
    print(note)
    return 0


if __name__ == "__main__":
    sys.exit(main())

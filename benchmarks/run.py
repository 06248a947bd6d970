# SPDX-License-Identifier: Apache-2.0
"""`make bench`: what the analyser costs, beside what others cost on the same or such an input.

    python benchmarks/run.py [--ops 100000] [--events 200000] [--capture DIR]... [--peer-python PYTHON]

`--capture` adds a raw capture of yours (its own FRAMEWORK and PROF_* folders); `--peer-python` names an interpreter with
torch-tb-profiler or HolisticTraceAnalysis, which are then measured in the same run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from benchmarks import framework_capture, kineto_trace, measure

HERE = Path(__file__).resolve().parent
STEPSCOPE = [sys.executable, "-m", "stepscope"]


@dataclass(frozen=True)
class Line:
    what: str
    cost: measure.Cost
    in_bytes: int
    out_bytes: int = 0
    peer: str = ""  # key of peers.json, for a peer measured elsewhere
    ratio: str = ""


def folder_bytes(folder: Path) -> int:
    """Size of a folder without the store inside it."""
    return sum(
        path.stat().st_size for path in folder.rglob("*") if path.is_file() and ".stepscope" not in path.relative_to(folder).parts
    )


def analysed(name: str, capture: Path, exports: str, peer: str = "") -> Line:
    """A first analysis: no store yet, results to a folder of their own."""
    shutil.rmtree(capture / ".stepscope", ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=capture.parent) as out:
        cost = measure.run([*STEPSCOPE, "analyse", str(capture), "--export", exports, "--out", out])
        return Line(f"{name}: {exports}", cost, folder_bytes(capture), folder_bytes(Path(out)), peer)


def opened(name: str, capture: Path) -> Line:
    """What a new process pays to open a store (made here, unmeasured) and touch every table."""
    measure.run([*STEPSCOPE, "info", str(capture)])
    code = (
        "import sys, time, stepscope.capture as c; t = time.perf_counter(); "
        "tables = c.open_capture(sys.argv[1]).tables; rows = sum(tables[name].height for name in tables); "
        "print(f'{time.perf_counter() - t:.3f} s, {rows} rows')"
    )
    cost = measure.run([sys.executable, "-c", code, str(capture)])
    return Line(f"{name}: open the store ({cost.output.strip()})", cost, folder_bytes(capture / ".stepscope"))


def loaded(name: str, trace: Path) -> Line:
    code = "import sys, stepscope.capture as c; c.open_capture(sys.argv[1]).tables"
    shutil.rmtree(trace.with_name(f".stepscope.{trace.name}"), ignore_errors=True)
    return Line(f"{name}: into the store", measure.run([sys.executable, "-c", code, str(trace)]), trace.stat().st_size)


def peers(trace: Path, python: str) -> Iterator[Line]:
    with tempfile.TemporaryDirectory(dir=trace.parent) as folder:
        shutil.copyfile(trace, Path(folder) / trace.name)
        for short, name in (("tb", "torch-tb-profiler"), ("hta", "HolisticTraceAnalysis")):
            try:
                yield Line(f"peer {name}", measure.run([python, str(HERE / "peer_load.py"), short, folder]), trace.stat().st_size)
            except measure.Failed as problem:
                print(f"{name} not measured: {str(problem).splitlines()[-1]}", file=sys.stderr)


def lines(args: argparse.Namespace, data: Path) -> Iterator[Line]:
    for steps in (10, 1000):
        name = f"{args.ops:,} operators in {steps} steps"
        capture = framework_capture.capture(data / f"framework-{args.ops}-{steps}", ops=args.ops, steps=steps)
        yield analysed(name, capture, "text")
    yield analysed(name, capture, "db")
    yield opened(name, capture)
    for capture in args.capture:
        yield analysed(capture.name, capture, "text", args.peer_text)
        yield analysed(capture.name, capture, "db", args.peer_db)
        yield opened(capture.name, capture)
    trace = data / f"gpu-{args.events}.pt.trace.json"
    kineto_trace.write(trace, args.events)
    ours = loaded(f"GPU trace, {args.events:,} events", trace)
    yield ours
    if args.peer_python:
        for peer in peers(trace, args.peer_python):
            yield Line(peer.what, peer.cost, peer.in_bytes, ratio=f"ours {peer.cost.seconds / ours.cost.seconds:.1f}× faster")


def draw(results: list[Line]) -> None:
    elsewhere = orjson.loads((HERE / "peers.json").read_bytes())
    table = Table(title="stepscope benchmarks", title_justify="left")
    for column in ("what", "s", "CPU s", "in MB", "out MB", "in MB/s", "peak MB", "memory / input", "against peers"):
        table.add_column(column, justify="left" if column in ("what", "against peers") else "right", overflow="fold")
    for line in results:
        cost, ratio = line.cost, line.ratio
        if line.peer in elsewhere:
            peer = elsewhere[line.peer]
            memory = peer["gigabytes"] * 1e9 / cost.peak_bytes
            ratio = f"{peer['seconds'] / cost.seconds:.1f}× faster, 1/{memory:.1f} of the memory (peer measured elsewhere)"
        values = (line.in_bytes / 1e6, line.out_bytes / 1e6, line.in_bytes / 1e6 / cost.seconds, cost.peak_bytes / 1e6)
        shown = [f"{value:,.0f}" for value in values]
        table.add_row(
            line.what,
            f"{cost.seconds:.2f}",
            f"{cost.cpu_seconds:.2f}",
            *shown,
            f"{cost.peak_bytes / max(1, line.in_bytes):.2f}",
            ratio,
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--capture", type=Path, action="append", default=[])
    parser.add_argument("--peer-text", default="", help="key of peers.json to compare a --capture's text analysis with")
    parser.add_argument("--peer-db", default="", help="the same for its db analysis")
    parser.add_argument("--peer-python", help="interpreter that has other tools installed")
    args = parser.parse_args()
    data = HERE.parent / "bench-data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    try:
        draw(list(lines(args, data)))
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

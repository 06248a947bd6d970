# SPDX-License-Identifier: Apache-2.0
"""`make bench-formats`: time and memory of the analyser, compared with other tools on the same or similar input.

    python benchmarks/run.py [--ops 100000] [--tasks 200000 1000000] [--events 200000] [--capture DIR]... [--peer-python PYTHON]

`--tasks` are sizes of raw device folders (0: none); their peers are compared by CPU time.

`--capture` adds a raw capture of your own (with FRAMEWORK and PROF_* folders); `--peer-python` names an interpreter with
torch-tb-profiler or HolisticTraceAnalysis, which are then measured in the same run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from benchmarks import framework_capture, kineto_trace, measure, raw_capture

HERE = Path(__file__).resolve().parent
STEPSCOPE = [sys.executable, "-m", "stepscope"]
RAW_PEERS = {  # of the raw folder of this many tasks
    200_000: (
        "vendor's open parser, C++, all files, 200k device tasks",
        "vendor's open parser, Python, all files, 200k device tasks",
    ),
}


@dataclass(frozen=True)
class Line:
    what: str
    cost: measure.Cost
    in_bytes: int
    out_bytes: int = 0
    peers: tuple[str, ...] = ()  # keys of peers.json, for peers measured elsewhere
    ratio: str = ""


def folder_bytes(folder: Path) -> int:
    """Size of a folder without the store inside it."""
    return sum(
        path.stat().st_size for path in folder.rglob("*") if path.is_file() and ".stepscope" not in path.relative_to(folder).parts
    )


def analyse_line(name: str, capture: Path, exports: str, *peers: str) -> Line:
    """A first analysis: without a store, results in a separate folder."""
    shutil.rmtree(capture / ".stepscope", ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=capture.parent) as out:
        cost = measure.run([*STEPSCOPE, "analyse", str(capture), "--export", exports, "--out", out])
        return Line(f"{name}: {exports}", cost, folder_bytes(capture), folder_bytes(Path(out)), peers)


def open_line(name: str, capture: Path) -> Line:
    """Cost for a new process to open a store (built here, not measured) and touch every table."""
    measure.run([*STEPSCOPE, "info", str(capture)])
    code = (
        "import sys, time, stepscope.capture as c; t = time.perf_counter(); "
        "tables = c.open_capture(sys.argv[1]).tables; rows = sum(tables[name].height for name in tables); "
        "print(f'{time.perf_counter() - t:.3f} s, {rows} rows')"
    )
    cost = measure.run([sys.executable, "-c", code, str(capture)])
    return Line(f"{name}: open the store ({cost.output.strip()})", cost, folder_bytes(capture / ".stepscope"))


def load_line(name: str, source: Path) -> Line:
    """Read a trace or a folder into a new store."""
    shutil.rmtree(source / ".stepscope" if source.is_dir() else source.with_name(f".stepscope.{source.name}"), ignore_errors=True)
    size = folder_bytes(source) if source.is_dir() else source.stat().st_size
    return Line(f"{name}: into the store", measure.run([*STEPSCOPE, "info", str(source)]), size)


def raw_folders(sizes: Sequence[int], data: Path) -> Iterator[Line]:
    """Raw device folders of several sizes, into the store and to every file; growth is relative to the first size."""
    first: dict[str, float] = {}  # CPU seconds per task
    for tasks in filter(None, sizes):
        prof = raw_capture.write(data / f"raw-{tasks}", tasks)
        name = f"raw folder, {tasks:,} device tasks"
        for kind, line in (
            ("store", load_line(name, prof)),
            ("all", analyse_line(name, prof, "text,db", *RAW_PEERS.get(tasks, ()))),
        ):
            growth = line.cost.cpu_seconds / tasks / first.setdefault(kind, line.cost.cpu_seconds / tasks)
            speed = f"{line.in_bytes / 1e6 / line.cost.cpu_seconds:,.0f} MB a CPU second"
            yield replace(
                line, ratio=speed if line.peers or growth == 1 else f"{speed}; {growth:.2f}× CPU per task of the first size"
            )
        shutil.rmtree(prof)


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
        yield analyse_line(name, capture, "text")
    yield analyse_line(name, capture, "db")
    yield open_line(name, capture)
    for capture in args.capture:
        yield analyse_line(capture.name, capture, "text", *filter(None, [args.peer_text]))
        yield analyse_line(capture.name, capture, "db", *filter(None, [args.peer_db]))
        yield open_line(capture.name, capture)
    yield from raw_folders(args.tasks, data)
    trace = data / f"gpu-{args.events}.pt.trace.json"
    kineto_trace.write(trace, args.events)
    ours = load_line(f"GPU trace, {args.events:,} events", trace)
    yield ours
    if args.peer_python:
        for peer in peers(trace, args.peer_python):
            yield Line(peer.what, peer.cost, peer.in_bytes, ratio=f"ours {peer.cost.seconds / ours.cost.seconds:.1f}× faster")


def against(cost: measure.Cost, name: str, peer: dict[str, float]) -> str:
    """How much less than a peer that was measured elsewhere."""
    by_cpu = "cpu_seconds" in peer
    times = peer["cpu_seconds"] / cost.cpu_seconds if by_cpu else peer["seconds"] / cost.seconds
    memory = f", 1/{peer['gigabytes'] * 1e9 / cost.peak_bytes:.1f} of the memory" if "gigabytes" in peer else ""
    saved = f"1/{times:.1f} of the CPU time" if by_cpu else f"{times:.1f}× faster"
    return f"{saved}{memory} ({name}, measured elsewhere)"


def draw(results: list[Line]) -> None:
    elsewhere = orjson.loads((HERE / "peers.json").read_bytes())
    table = Table(title="stepscope benchmarks", title_justify="left")
    for column in ("what", "s", "CPU s", "in MB", "out MB", "in MB/s", "peak MB", "memory / input", "against peers"):
        table.add_column(column, justify="left" if column in ("what", "against peers") else "right", overflow="fold")
    for line in results:
        cost = line.cost
        ratio = "; ".join(
            [*filter(None, [line.ratio]), *(against(cost, name, elsewhere[name]) for name in line.peers if name in elsewhere)]
        )
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
    parser.add_argument("--tasks", type=int, nargs="*", default=[200_000, 1_000_000])
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

"""Train a small transformer on two simulated NPUs, profile two of its steps, and show where the time went."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table

from stepscope.capture import Capture, open_all
from stepscope.report import top
from stepscope.verdict import summary

HERE = Path(__file__).resolve().parent
RUN = HERE.parent / "demo-run"
PROFILE = "steps=4:5,level=1,memory,stack,shapes,modules"
# Silences torch, which would write between our lines; and one thread per process, as for a kernel of the simulated NPU.
QUIET = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}


def train(console: Console) -> None:
    """Run the unchanged training script in two processes with `stepscope run`; its captures go to demo-run."""
    shutil.rmtree(RUN, ignore_errors=True)
    script = HERE / "train_transformer.py"
    words = ["run", "--nproc", "2", "--profile", f"{PROFILE},out={_short(RUN)}", str(_short(script))]
    console.print(f"[bold]$ stepscope {' '.join(words)}[/bold]", soft_wrap=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "stepscope", *words],
        env={**os.environ, **QUIET},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    everything, ours = [], False
    with console.status("training, profiling and analysing in two processes"):
        for line in process.stdout:
            everything.append(line)
            ours = line.startswith("stepscope:") or (ours and line.startswith("  "))
            if ours or line.startswith("step ") or "[WARNING]" in line or "[ERROR]" in line:
                console.print(f"  {line.rstrip()}", highlight=False, soft_wrap=True)
    if process.wait() or not list(RUN.glob("*/ASCEND_PROFILER_OUTPUT")):
        why = f"error: no capture was analysed; the run ended with code {process.returncode}, see its output above"
        raise SystemExit("".join([*everything, why]))


def steps_of(captures: list[Capture]) -> pl.DataFrame:
    """Where the time of each recorded step went, on the device of each rank."""
    frames = [top(capture.tables, by="step").with_columns(rank=pl.lit(capture.tables.facts.rank)) for capture in captures]
    columns = {"whole": "stage_ms", "computing": "computing_ms", "communication": "communication_ms", "overlapped": "overlapped_ms"}
    return pl.concat(frames).select("rank", "step", **columns, free="free_ms")


def in_words(steps: pl.DataFrame) -> str:
    """What the times mean, for somebody who sees such a table for the first time."""
    whole = steps["whole"].sum()
    computing, free = steps["computing"].sum() / whole, steps["free"].sum() / whole
    waiting = 1 - computing - free
    advice = {
        computing: "The devices mostly compute: look at the heaviest kernels first.",
        waiting: "The devices mostly wait for each other: look at communication.json and for a slow rank.",
        free: "The devices mostly wait for the host: look at the heaviest operators and at what runs between them.",
    }[max(computing, waiting, free)]
    return (
        f"In these steps the devices spent {computing:.0%} of the time computing, {waiting:.0%} in exposed (non-overlapped) "
        f"communication, and {free:.0%} free. {advice}"
    )


def draw(console: Console, title: str, frame: pl.DataFrame) -> None:
    table = Table(title=title, title_justify="left", header_style="bold")
    for name, dtype in frame.schema.items():
        # Numbers keep their width on a narrow terminal; names are shortened.
        if dtype.is_numeric():
            table.add_column(name.replace("_", " "), justify="right")
        else:
            table.add_column(name, max_width=None if frame.width == 2 else max(24, console.width - 52), no_wrap=frame.width > 2)
    for row in frame.iter_rows():
        table.add_row(*(f"{value:,.2f}" if isinstance(value, float) else str(value) for value in row))
    console.print(table)


def summarise(console: Console, captures: list[Capture]) -> None:
    first = captures[0].tables
    console.print()
    if first.kernels.height:
        steps = steps_of(captures)
        draw(console, "Where the time of the recorded steps went, in milliseconds on the device", steps)
        console.print("overlapped: communication while the device computes\n" + in_words(steps), "\n")
        operators = top(first, by="op").sort("device_self_ms", descending=True)
        draw(
            console,
            "Five heaviest operators of rank 0",
            operators.select("name", "calls", "device_self_ms", "host_self_ms").head(5),
        )
        kernels = top(first, by="kernel").filter(pl.col("kind") == "compute")
        draw(console, "Five heaviest kernels of rank 0", kernels.select("name", "calls", "total_ms", "max_ms").head(5))
    else:
        console.print("No NPU is available, so this shows the host. With a C++ compiler the demo uses two simulated NPUs.\n")
        draw(console, "Five heaviest operators of rank 0", top(first, by="op").head(5))
    draw(console, "In short, rank 0", summary(first))


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def main(picture: str | None = None) -> int:
    console = Console(record=picture is not None, width=112 if picture else None)
    began = time.perf_counter()
    train(console)
    captures = sorted(open_all(RUN), key=lambda capture: capture.tables.facts.rank)
    summarise(console, captures)
    results = captures[0].path / "ASCEND_PROFILER_OUTPUT"
    console.print(f"\n{time.perf_counter() - began:.0f} s in all. Files of rank 0 in {_short(results)}:", soft_wrap=True)
    console.print("  " + ", ".join(sorted(path.name for path in results.iterdir() if path.suffix != ".done")))
    console.print("\nnext:")
    heaviest = "kernel" if captures[0].tables.kernels.height else "module"
    for command in (f"view {_short(RUN)}", f"top {_short(captures[0].path)} --by {heaviest}", f"info {_short(captures[0].path)}"):
        console.print(f"  {_short(Path(sys.executable).parent / 'stepscope')} {command}", soft_wrap=True, highlight=False)
    if picture:
        # Without the font that a browser would download; any monospace font will do.
        Path(picture).write_text(re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make demo"), flags=re.DOTALL))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

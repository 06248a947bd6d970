"""Train a small transformer on two simulated NPUs, profile two of its steps, and show where the time went."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from stepscope.capture import Capture, open_all
from stepscope.verdict import verdict, words
from stepscope.verdict.text import lines

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


def summarise(console: Console, captures: list[Capture]) -> None:
    """The verdict on both ranks, in the words of `stepscope verdict`."""
    console.print()
    if not captures[0].tables.kernels.height:
        console.print("No NPU is available, so this shows the host. With a C++ compiler the demo uses two simulated NPUs.\n")
    found = verdict([capture.tables for capture in captures])
    width = min(console.width, 100)
    for number, line in enumerate(lines(found, words.language(), width=width, top=3)):
        console.print(line, style="bold" if number == 0 else None, highlight=False, soft_wrap=True)


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
    for command in (f"view {_short(RUN)}", f"verdict {_short(RUN)}", f"top {_short(captures[0].path)} --by {heaviest}"):
        console.print(f"  {_short(Path(sys.executable).parent / 'stepscope')} {command}", soft_wrap=True, highlight=False)
    if picture:
        # Without the font that a browser would download; any monospace font will do.
        Path(picture).write_text(re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make demo"), flags=re.DOTALL))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

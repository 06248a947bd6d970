"""Profile a small training run with torch's own profiler, analyse it, and say what was found and where to look."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path

os.environ.update(KINETO_LOG_LEVEL="99", TORCH_CPP_LOG_LEVEL="ERROR")  # torch's own chatter; must be set before the import

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from stepscope.analyser import Request, analyse_captures
from stepscope.capture import open_all
from stepscope.report import top, verdict

RUN = Path(__file__).resolve().parents[1] / "demo-run"
STEPS = 8


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norms[0](x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.feed_forward(self.norms[1](x))


def capture(console: Console) -> Path:
    """Train a two-block transformer on the CPU for a few steps under torch.profiler."""
    torch.set_num_threads(1)  # the same picture on a laptop and on a busy server
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.mkdir()
    trace = RUN / "training.pt.trace.json"
    model = nn.Sequential(nn.Embedding(1000, 128), Block(128), Block(128), nn.Linear(128, 1000))
    optimizer = torch.optim.AdamW(model.parameters())
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=STEPS),
        on_trace_ready=lambda finished: finished.export_chrome_trace(str(trace)),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        with_modules=True,
    ) as profiler:
        for _ in track(range(STEPS + 2), description="training under the profiler", console=console, transient=True):
            tokens = torch.randint(0, 1000, (8, 64))
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    return trace


def draw(console: Console, title: str, frame) -> None:
    table = Table(title=title, title_justify="left", header_style="bold")
    for name, dtype in frame.schema.items():
        # Numbers keep their width on a narrow terminal; names give way.
        if dtype.is_numeric():
            table.add_column(name, justify="right", min_width=len(name), no_wrap=True)
        else:
            table.add_column(name, max_width=60 if frame.width == 2 else max(20, console.width - 56), no_wrap=True)
    for row in frame.iter_rows():
        table.add_row(*(f"{value:,.2f}" if isinstance(value, float) else str(value) for value in row))
    console.print(table)


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def main(picture: str | None = None) -> int:
    console = Console(record=picture is not None, width=112 if picture else None)
    trace = capture(console)
    console.print(f"captured [bold]{STEPS} steps[/bold] with torch.profiler: {trace.stat().st_size / 1e6:.1f} MB")
    started = time.perf_counter()
    (opened,) = open_all(trace)
    with console.status("analysing"):
        (result,) = analyse_captures([opened], Request(exports=("text", "perfetto", "parquet")), jobs=1)
    if not result.ok:
        console.print(f"[red]error:[/red] {result.error}")
        return 3
    rows = {name: opened.tables[name].height for name in ("ops", "python_calls", "memory_events")}
    console.print(f"analysed {sum(rows.values()):,} events in {time.perf_counter() - started:.1f} s\n")
    draw(console, "Verdict", verdict(opened.tables))
    draw(console, "Operators with the most time of their own", top(opened.tables, by="op").head(6))
    draw(console, "Modules", top(opened.tables, by="module").head(6))
    console.print(f"\nfiles: {_short(Path(result.folder))}")
    for name in result.files:
        if not name.startswith("parquet/"):
            console.print(f"  {name}")
    console.print("\nnext:")
    console.print(f"  .venv/bin/stepscope top {_short(trace)} --by step")
    console.print(f"  .venv/bin/stepscope info {_short(trace)}")
    console.print("  open perfetto_trace.json.gz in ui.perfetto.dev")
    if picture:
        # Without the font that would be fetched from elsewhere; any monospace font does.
        Path(picture).write_text(re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make demo"), flags=re.DOTALL))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

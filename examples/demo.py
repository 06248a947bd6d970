"""From symptom to proof: a slow data loader on one of two simulated NPUs is found, named, fixed, and the fix confirmed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from stepscope.capture import Capture, open_all
from stepscope.cluster.read.reading import Options
from stepscope.cluster.report import lines
from stepscope.cluster.run import analyse_run, load
from stepscope.cluster.words import cause_text
from stepscope.diff import words as diff_words
from stepscope.diff.engine import diff
from stepscope.language import language
from stepscope.verdict import Verdict, verdict, words
from stepscope.verdict.finding import Finding

HERE = Path(__file__).resolve().parent
RUN = Path(os.environ.get("DEMO_RUN") or HERE.parent / "demo-run")
SCRIPT = HERE / "slow_loader.py"
# Silences torch, which would write between our lines; and one thread per process, as for a kernel of the simulated NPU.
QUIET = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
# English and Chinese.
TEXTS = {
    "train": (
        "1. Train on two NPUs, record twenty steps; then the same with the fix.",
        "1. 在两个 NPU 上训练并采集 20 个 step；随后在修复之后再做一次。",
    ),
    "ask": ("2. What costs time?", "2. 时间花在哪里？"),
    "ranks": (
        "   Rank {victim} waits {ms:.1f} ms a step for rank {late}: {why}.",
        "   rank {victim} 每个 step 等待 rank {late} {ms:.1f} ms：{why}。",
    ),
    "where": ("where", "位置"),
    "next": ("next", "下一步"),
    "predict": (
        "3. Prediction: without waiting for data, rank {rank} saves {saved:.1f} ms of each step.",
        "3. 预测：rank {rank} 若不再等待数据，每个 step 可节省 {saved:.1f} ms。",
    ),
    "fix": (
        "   The fix keeps what was decoded: Samples(rank, keep=True).",
        "   修复：保留已解码的样本：Samples(rank, keep=True)。",
    ),
    "confirm": ("4. Was that it?", "4. 确实如此吗？"),
    "done": ("{seconds:.0f} s in all.", "共 {seconds:.0f} 秒。"),
    "open": ("The page opens in the browser; Ctrl+C ends it.", "页面将在浏览器中打开；按 Ctrl+C 结束。"),
    "cpu": (
        "No NPU is available, so this shows the host. With a C++ compiler the demo uses two simulated NPUs.",
        "没有可用的 NPU，以下仅为主机数据。安装 C++ 编译器后，演示将使用两个模拟 NPU。",
    ),
    "failed": (
        "error: nothing was recorded; the run ended with code {code}, see its output above",
        "错误：没有采集到数据；运行以代码 {code} 结束，见上方输出",
    ),
}


def say(key: str, **values: object) -> str:
    return TEXTS[key][language() == "zh"].format(**values)


def train(console: Console) -> None:
    """Run the script in two processes on simulated NPUs; its captures go to demo-run/before and demo-run/after."""
    shutil.rmtree(RUN, ignore_errors=True)
    command = ["run", "--nproc", "2", str(_short(SCRIPT)), str(_short(RUN))]
    console.print(f"[bold]$ stepscope {' '.join(command)}[/bold]", soft_wrap=True)
    with console.status("training"):
        done = subprocess.run(
            [sys.executable, "-m", "stepscope", *command],
            env={**os.environ, **QUIET},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if done.returncode or not list(RUN.glob("after/*")):
        raise SystemExit(f"{done.stdout}{say('failed', code=done.returncode)}")


def captures(side: str) -> list[Capture]:
    return sorted(open_all(RUN / side), key=lambda capture: capture.facts.rank)


def show_findings(console: Console, found: Verdict) -> Finding | None:
    """The answer in one line and its two largest findings; the one about the loader."""
    lang = language()
    console.print(f"[bold]$ stepscope verdict {_short(RUN / 'before')}[/bold]", soft_wrap=True)
    console.print(f"   {words.answer(found, lang)}", highlight=False, soft_wrap=True)
    for finding in found.findings[:2]:
        ranks = ", ".join(map(str, finding.ranks))
        console.print(
            f"   • {finding.text('title', lang)} (rank {ranks}, {finding.saved_ms:.1f} ms)", highlight=False, soft_wrap=True
        )
        console.print(f"     {say('next')}: {finding.text('next', lang)}", style="dim", highlight=False, soft_wrap=True)
    return next((finding for finding in found.findings if finding.rule == "data-wait"), None)


def show_ranks(console: Console) -> None:
    """Who waits for whom: the first finding about all ranks together."""
    lang = language()
    analysis = analyse_run(load([RUN / "before"], options=Options(cache=False)))
    finding = next((one for one in analysis.findings if one.victims), None)
    console.print(f"[bold]$ stepscope cluster {_short(RUN / 'before')}[/bold]", soft_wrap=True)
    if finding is None:  # on a busy machine steps may vary too much; then it says so itself
        for text in lines(analysis, lang):
            console.print(f"   {text}", highlight=False, soft_wrap=True)
        return
    victim = max(finding.victims, key=lambda one: one["ms"])
    figures = {"late": finding.ranks[0], "victim": int(victim["rank"]), "ms": victim["ms"], "why": cause_text(finding.cause, lang)}
    console.print(say("ranks", **figures), highlight=False, soft_wrap=True)


def main(arguments: Sequence[str] = ()) -> int:
    picture = next((word for word in arguments if not word.startswith("-")), None)
    console = Console(record=picture is not None, width=112 if picture else None)
    began = time.perf_counter()
    console.print(say("train"))
    train(console)
    before, after = ([capture.tables for capture in captures(side)] for side in ("before", "after"))
    if not before[0].kernels.height:
        console.print(say("cpu"))
    console.print(f"\n{say('ask')}")
    loader = show_findings(console, verdict(before))
    show_ranks(console)
    if loader is not None:
        console.print(f"\n{say('predict', rank=loader.rank, saved=loader.saved_ms)}")
        console.print(say("fix"))
    console.print(f"\n{say('confirm')}")
    console.print(f"[bold]$ stepscope diff {_short(RUN / 'before')} {_short(RUN / 'after')} --by part[/bold]", soft_wrap=True)
    compared = diff(before, after, by="part")
    console.print(f"   {diff_words.answer(compared, language())}", highlight=False, soft_wrap=True)
    for row in sorted(compared.parts, key=lambda row: row.delta_ns)[:2]:
        name = diff_words.part_name(row.part, language())
        console.print(f"   • {name}: {float(row.base_ns) / 1e6:.1f} → {float(row.new_ns) / 1e6:.1f} ms", highlight=False)
    if picture is None:
        console.print(f"\n{say('done', seconds=time.perf_counter() - began)}")
    program = Path(".venv/bin/stepscope") if picture else _short(Path(sys.executable).parent / "stepscope")
    console.print(f"\n{say('next')}: {program} view {_short(RUN)}", soft_wrap=True, highlight=False)
    if picture:
        # Without the font that a browser would download; any monospace font will do.
        Path(picture).write_text(re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make demo"), flags=re.DOTALL))
    elif "--no-browser" not in arguments and _has_browser():
        console.print(say("open"))
        return subprocess.run([sys.executable, "-m", "stepscope", "view", str(RUN)], check=False).returncode
    return 0


def _has_browser() -> bool:
    """Whether a person sits at this terminal and a window can open."""
    if not sys.stdout.isatty() or not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

# SPDX-License-Identifier: Apache-2.0
"""`stepscope doctor --npu`: what to do, in order, and the report of it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path

from stepscope import __version__, analyser
from stepscope.analysis import quality
from stepscope.capture import Capture, open_capture
from stepscope.doctor import vendor
from stepscope.doctor.compare import FileComparison, compare_folders
from stepscope.errors import CaptureError

WORKLOAD = Path(__file__).with_name("workload.py")
_SECONDS = 600


@dataclass
class Report:
    """What the self-test found; `text` is the file that a user attaches to an issue."""

    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def section(self, title: str, *lines: str) -> None:
        self.lines += [f"## {title}", "", *lines, ""]

    def text(self) -> str:
        verdict = [f"- {problem}" for problem in self.problems] or ["everything that was checked is right"]
        return "\n".join([f"# stepscope {__version__}: self-test of an NPU", "", *verdict, "", *self.lines])


def examine(folder: Path, progress: Callable[[str], None]) -> Report:
    """Record, analyse and compare in `folder`; whatever fails is part of the report.

    Raises:
        CaptureError: there is nothing to record with.
    """
    if util.find_spec("torch") is None:
        raise CaptureError(
            "an NPU is tested by a small training, which needs torch",
            where="stepscope doctor --npu",
            cause="torch is not installed in this Python",
            fix="pip install 'stepscope[torch]' where you train, and torch_npu for real NPUs",
        )
    report = Report()
    python = sys.version.split()[0]
    report.section("Machine", f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} processors, Python {python}")
    progress("recording a few steps on npu:0")
    capture = _record(folder / "recorded", report)
    if capture is None:
        return report
    # Both tools get a copy: each removes what it does not need any more.
    mine, others = (Path(shutil.copytree(capture, folder / side / capture.name)) for side in ("ours", "vendor"))
    progress("analysing")
    opened = _analyse(mine, report)
    tool = vendor.find()
    if opened is None or tool is None:
        if tool is None:
            report.section("Comparison", "not done: neither torch_npu nor msprof is installed")
        return report
    name, analyse = tool
    progress(f"analysing with {name}")
    try:
        theirs = analyse(others)
    except (subprocess.SubprocessError, OSError, StopIteration) as fault:
        report.problems.append(f"{name} failed: {fault}")
        report.section("Comparison", f"not done: {name} failed", "```", str(getattr(fault, "stderr", "") or "")[-3000:], "```")
        return report
    ours = mine / vendor.OUTPUT
    if theirs.name == vendor.PROF_OUTPUT:
        prof = next(mine.glob("PROF_*"))
        analyser.analyse_captures([open_capture(prof)], analyser.Request(), jobs=1)
        ours = prof / analyser.PROF_OUTPUT
    report.section(f"Comparison with {name}", *comparison_lines(compare_folders(ours, theirs), report))
    return report


def comparison_lines(compared: list[FileComparison], report: Report) -> list[str]:
    """A table of files, then the first differences of each; files that differ are problems."""
    lines = ["| file | cells | different |", "| --- | --- | --- |"]
    lines += [f"| {item.name} | {item.cells} | {item.different if item.cells else '–'} |" for item in compared]
    for item in compared:
        if not item.equal:
            report.problems.append(f"{item.name} differs from the vendor's file")
            lines += ["", f"{item.name}:", *(f"- {remark}" for remark in item.remarks)]
    return lines


def _record(folder: Path, report: Report) -> Path | None:
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "stepscope", "run", str(WORKLOAD), str(folder)]
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        code, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        code, said = -1, f"no end after {_SECONDS} s\n{_text(late.stdout)}"
    report.section(f"Recording ({time.monotonic() - began:.1f} s)", "```", said.strip(), "```")
    captures = sorted(folder.glob("*_ascend_pt"))
    if code or not captures:
        report.problems.append(f"recording failed with exit code {code}" if code else "recording left no capture")
        return None
    return captures[0]


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _analyse(capture: Path, report: Report) -> Capture | None:
    result = analyser.analyse(str(capture))[0]
    if not result.ok:
        report.problems.append(f"our analysis failed: {result.error}")
        return None
    opened = open_capture(capture)
    tables = opened.tables
    rows = {name: tables[name].height for name in tables.filled() if name not in ("meta", "quality")}
    versions = f"torch_npu {tables.facts.torch_npu_version or 'none'}, CANN {tables.facts.cann_version or 'not known'}"
    lines = [
        versions,
        "",
        f"rows: {', '.join(f'{name} {count}' for name, count in rows.items())}",
        "",
        f"files: {', '.join(result.files)}",
    ]
    for found in quality.occurrences(tables.quality):
        lines.append(f"- {found.issue.severity}: {found.sentence()} [{found.where()}]")
        if found.issue.severity == "loss":
            report.problems.append(f"lost: {found.sentence()}")
    for name in ("ops", "kernels", "steps", "memory_events"):
        if not rows.get(name):
            report.problems.append(f"the capture has no {name}")
    unlaunched = int(tables.kernels["op"].is_null().sum())
    lines.append(f"\nkernels without an operator: {unlaunched} of {tables.kernels.height}")
    report.section(f"Our analysis ({result.seconds:.1f} s)", *lines)
    return opened


def write(report: Report, folder: Path) -> Path:
    """Write the report into `folder`.

    Raises:
        CaptureError: the folder cannot be written to.
    """
    path = folder / f"stepscope-doctor-{time.strftime('%Y%m%d%H%M%S')}.md"
    try:
        path.write_text(report.text(), encoding="utf-8")
    except OSError as fault:
        raise CaptureError("cannot write the report", where=str(path), cause=fault.strerror, fix="pass --out DIR") from fault
    return path

# SPDX-License-Identifier: Apache-2.0
"""From an outlier to one capture of the next steps on all ranks, and no more captures than the disk should hold.

All ranks of a job often see the same slow step. The first to enter it in the register (a folder beside the requests, which all
ranks share) requests the capture; the others find its entry.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from stepscope.collect import messages, paths
from stepscope.control import requests
from stepscope.errors import CaptureError
from stepscope.formats.ring.layout import PHASES
from stepscope.watch.rule import COOLDOWN_STEPS, KNOWN_STEPS, is_like
from stepscope.watch.settings import Settings

REGISTER, CAPTURES, MARK = "escalations", "captures", ".stepscope-watch"
HOUR_SECONDS = 3600.0
LONGEST_CAPTURE_SECONDS = 1800.0
_FOLDER = re.compile(r"\d{5}_step_\d+_[a-z_]+")
_EXPLAINS = 0.5  # a phase is the reason if it makes up this share of the excess


@dataclass(frozen=True)
class Outlier:
    """A step that was much slower than those before it."""

    step: int
    ns: int
    median_ns: int
    phases: tuple[int, int, int, int]
    rank: int = 0
    lasting: bool = False

    def reason(self) -> str:
        """What made it slow, as far as the watch can see."""
        spent = dict(zip(PHASES, self.phases, strict=True))
        excess = self.ns - self.median_ns
        return next((name for name in ("data_wait", "gc") if spent[name] >= _EXPLAINS * excess), "step")


class Escalation:
    """Requests captures through the folder that the job watches.

    Args:
        settings: how many steps, how many captures, how much disk space.
        control: the folder of requests.
        out: where the captures go.
        since: seconds of Unix time at which this job began; entries of earlier jobs count for the disk and the hour only.
        clock: seconds of Unix time.
        progress: the step of this moment, and the seconds that a step takes.
    """

    def __init__(
        self,
        settings: Settings,
        control: Path,
        out: Path,
        *,
        since: float,
        clock: Callable[[], float] = time.time,
        progress: Callable[[], tuple[int, float]] | None = None,
    ):
        self._settings, self._control, self._out, self._since, self._clock = settings, control, out, since, clock
        self._progress = progress

    def run(self, outlier: Outlier, patience: requests.Patience | None = None) -> str | None:
        """Request a capture and wait until it is complete; gives its reason, or None where none was made.

        Raises:
            CaptureError, OSError: it cannot be requested.
        """
        number = self._enter(outlier)
        if number is None:
            return None
        folder = self._out / CAPTURES / f"{number:05d}_step_{outlier.step}_{outlier.reason()}"
        paths.ensure_folder(folder)
        paths.write_file(folder / MARK, b"")
        why = {**asdict(outlier), "phases": dict(zip(PHASES, outlier.phases, strict=True)), "reason": outlier.reason()}
        keys = {"active": self._settings.record, "prof_dir": str(folder), "metadata": {"stepscope_watch": why}}
        outcome = requests.start(
            self._control,
            keys,
            ranks=self._settings.ranks,
            start_step=None,
            patience=patience or requests.Patience(),
            progress=self._progress,
        )
        messages.info(
            f"step {outlier.step} took {outlier.ns / 1e6:.1f} ms, the median is {outlier.median_ns / 1e6:.1f} ms "
            f"({outlier.reason()}); the next {self._settings.record} steps are recorded: next: stepscope verdict {folder}"
        )
        requests.wait_until_done(self._control, outcome, patience or requests.Patience(LONGEST_CAPTURE_SECONDS))
        prune(self._out / CAPTURES, int(self._settings.gigabytes * 1e9), keep=folder)
        return outlier.reason()

    def _enter(self, outlier: Outlier) -> int | None:
        """The number of the new entry in the register; None where an entry of another rank, or too many, say no."""
        register = self._control / REGISTER
        paths.ensure_folder(register)
        entries = _entries(register)
        now = self._clock()
        recent = [entry for _, entry in entries if 0 <= now - entry["time"] < HOUR_SECONDS]
        if len(recent) >= self._settings.captures:
            messages.once(
                messages.warning,
                f"step {outlier.step} was slow, but {len(recent)} captures were made within an hour: no more are requested for now",
            )
            return None
        for _, entry in entries:
            near = abs(outlier.step - entry["step"]) < (COOLDOWN_STEPS if outlier.lasting else KNOWN_STEPS)
            if near and entry["time"] >= self._since and is_like(outlier.ns, entry["ns"]):
                return None
        number = max((number for number, _ in entries), default=0) + 1
        content = json.dumps({"time": now, "step": outlier.step, "ns": outlier.ns, "rank": outlier.rank}).encode()
        return number if _create(register / f"{number:05d}.json", content) else None


def prune(captures: Path, most_bytes: int, *, keep: Path) -> None:
    """Delete the oldest folders that the watch made until the rest fits; never the newest, never what somebody else put there."""
    own = sorted(folder for folder in captures.iterdir() if _FOLDER.fullmatch(folder.name) and (folder / MARK).is_file())
    sizes = {folder: _bytes(folder) for folder in own if not folder.is_symlink()}
    for folder in own:
        if sum(sizes.values()) <= most_bytes:
            return
        if folder != keep and folder in sizes:
            shutil.rmtree(folder, ignore_errors=True)
            del sizes[folder]


def _bytes(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size
    return total


def _entries(register: Path) -> list[tuple[int, dict[str, float]]]:
    found = []
    for path in register.glob("*.json"):
        try:
            content = json.loads(path.read_bytes())
            found.append((int(path.stem), {name: float(content[name]) for name in ("time", "step", "ns")}))
        except (OSError, ValueError, TypeError, KeyError):
            continue  # not one of ours
    return found


def _create(path: Path, content: bytes) -> bool:
    """Whether this process created the file; a link shows it complete or not at all."""
    mine = paths.temporary(path)
    paths.write_file(mine, content)
    try:
        os.link(mine, path)
    except FileExistsError:
        return False
    finally:
        mine.unlink(missing_ok=True)
    return True


def warn(problem: CaptureError | OSError) -> None:
    why = f"{problem.what}: {problem.cause}" if isinstance(problem, CaptureError) else str(problem)
    messages.once(messages.warning, f"a slow step was seen, but no capture could be requested: {why}")

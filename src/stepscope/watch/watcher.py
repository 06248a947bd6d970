# SPDX-License-Identifier: Apache-2.0
"""Follows the steps of one process: a row in the ring for each, and a capture of the next ones when a step is an outlier."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from stepscope import dynamic_profile
from stepscope.collect import active, messages
from stepscope.collect.guard import Fuse, quietly, warn_on_failure
from stepscope.control.trust import ROOTS
from stepscope.dynamic_profile.session import Session
from stepscope.dynamic_profile.worker import Worker
from stepscope.errors import CaptureError
from stepscope.formats.ring import layout
from stepscope.watch import escalation, exporter, identity, ring
from stepscope.watch.escalation import Escalation, Outlier
from stepscope.watch.phases import Phases
from stepscope.watch.rule import Alarms, Limit
from stepscope.watch.settings import Settings

BATCH_SECONDS = 1.0  # between two looks at the steps that ended
MEMORY_BATCHES = 10
_FLAGS = layout.FIELDS.index("flags")
# What a step uses, side by side.
_now, _COUNT, _FIRST_ROW, _ROW = time.monotonic_ns, ring.COUNT, ring.FIRST_ROW, ring.ROW
_END = layout.FILE_BYTES // 8


class Watcher:
    """The watch of one process.

    Args:
        settings: what to do.
        first_step: number of the step that runs now; not 0 after a resume.
    """

    # step() runs between training steps with cold caches, where each line of memory costs as much as many instructions: it
    # writes a row, in one call without others below, and leaves all that follows to the thread.
    __slots__ = (
        "__weakref__",
        "_alarms",
        "_at",
        "_cells",
        "_count",
        "_digested",
        "_digesting",
        "_ended",
        "_fuse",
        "_last",
        "_limit",
        "_open",
        "_outliers",
        "_phases",
        "_rank",
        "_ring",
        "_session",
        "_settings",
        "_wake",
        "_was_recording",
        "_worker",
        "steps",
    )

    def __init__(self, settings: Settings, first_step: int = 0):
        self._settings = settings
        self.steps = first_step  # number of the step that runs now
        self._fuse = Fuse(self.stop)
        self._last = 0
        self._was_recording = False
        self._limit, self._alarms, self._phases = Limit(settings.k), Alarms(), Phases()
        self._ring: ring.Ring | None = None
        self._cells: memoryview[int] = memoryview(b"")
        self._at = _FIRST_ROW  # the cell where the next row begins
        self._count = self._digested = 0  # rows written, and those that the thread has seen
        self._digesting = threading.Lock()
        self._rank = -1
        self._session: Session | None = None
        self._worker: Worker | None = None  # of the session
        self._outliers: deque[Outlier] = deque(maxlen=4)
        self._wake = threading.Event()
        self._open = self._ended = False

    @property
    def ring_path(self) -> Path | None:
        return self._ring.path if self._ring is not None else None

    def open(self) -> None:
        """Begin: called when the script has an optimizer, so that launchers and loader processes leave no ring."""
        if not self._open:
            self._open = True
            self._fuse.run("stepscope.watch", self._begin)

    def stop(self) -> None:
        """End the watch; the ring stays."""
        self._ended, self._fuse.blown = True, True
        self._wake.set()
        active.ignore_begin(self._on_capture)
        quietly(self._phases.stop)
        quietly(self.digest)
        if self._session is not None:
            quietly(self._session.end)
            self._session = self._worker = None

    def forget(self) -> None:
        """In a forked child: the parent alone goes on; its ring is shared memory, and its answers are not ours to write."""
        self._ended, self._fuse.blown = True, True
        self._session = self._worker = self._ring = None
        active.ignore_begin(self._on_capture)
        quietly(self._phases.stop)

    def _begin(self) -> None:
        folder = self._settings.ring_folder()
        me = identity.of_this_process(self._settings)
        self._rank = me["rank"]
        try:
            self._ring = ring.Ring(folder, me)
        except CaptureError as problem:
            messages.warning(f"stepscope.watch keeps no ring: {problem.what}: {problem.cause} ({problem.where})")
            self._ring = ring.Ring(None, me)
        self._cells = self._ring.cells
        quietly(ring.forget_old, folder, _is_live)
        self._phases.start()
        self._was_recording = self._phases.unusual = active.running() is not None
        active.notify_begin(self._on_capture)
        control = warn_on_failure("preparing captures of slow steps", self._prepare_captures) if self._settings.record else None
        if os.environ.get("LOCAL_RANK", "0") == "0" and (self._settings.port is not None or self._settings.otlp):
            warn_on_failure("starting the exporter", exporter.start, self._settings)
        threading.Thread(target=self._run, args=(control,), name="stepscope-watch", daemon=True).start()

    def _prepare_captures(self) -> Escalation:
        out = Path(os.path.abspath(os.path.expanduser(self._settings.out)))
        control = dynamic_profile.watched_folder()
        if control is None:
            control = out / "control"
            self._session = Session(control)
            self._worker = self._session.worker
            self._worker.cur_step = self.steps
        # Whoever sets the watch's folder for a job lets it write there.
        roots = os.environ.get(ROOTS)
        os.environ[ROOTS] = f"{roots}{os.pathsep}{out}" if roots else str(out)
        return Escalation(
            self._settings, control, out, since=time.time(), progress=lambda: (self.steps, self._limit.median_ns / 1e9)
        )

    def step(self) -> None:
        """A step has ended."""
        if self._ended:
            return
        try:
            now, start, step, phases = _now(), self._last, self.steps, self._phases
            self._last = now
            self.steps = next_step = step + 1
            if start and not phases.unusual:
                at, cells = self._at, self._cells
                cells[at] = step
                cells[at + 1] = start
                cells[at + 2] = now
                cells[at + 3] = phases.data
                cells[at + 4] = 0
                cells[at + 5] = phases.gc
                cells[at + 6] = 0
                cells[at + 7] = 0
                self._count = cells[_COUNT] = self._count + 1
                at += _ROW
                self._at = at if at < _END else _FIRST_ROW
            else:
                self._unusual_step(step, start, now)
            phases.data = phases.gc = 0
            worker = self._worker
            if worker is not None:
                worker.cur_step = next_step
                if worker.alert:
                    worker.act()
        except Exception as why:  # noqa: BLE001 - the training loop border, without a call of `guard` at each step
            self._fuse.blow("watching a step", why)

    def _unusual_step(self, step: int, start: int, now: int) -> None:
        """One with a checkpoint, another loader or a running profiler; or the first one, whose begin nobody knows."""
        if not start:
            self._first_step()
        phases = self._phases
        # Before it is asked who runs: a profiler that begins after the answer, in another thread, sets both again.
        was_recording, self._was_recording, phases.unusual = self._was_recording, False, False
        recording = active.running() is not None
        if start and self._ring is not None:
            other = phases.settle_others() if phases.others else 0
            flags = layout.EVALUATION if other else 0
            if phases.checkpoint:
                flags |= layout.CHECKPOINT
            if recording or was_recording:  # the step in which a capture ended was slowed by it too
                flags |= layout.RECORDING
            self._ring.add(step, start, now, (phases.data, other, phases.gc, phases.checkpoint), flags)
            self._count += 1
            self._at = _FIRST_ROW + self._count % layout.ROWS * _ROW
        phases.checkpoint = 0
        if recording:
            self._was_recording = phases.unusual = True

    def _on_capture(self) -> None:
        """A profiler begins: no step is judged until it has ended."""
        self._was_recording = self._phases.unusual = True

    def digest(self) -> None:
        """Judge and count the steps that ended since the last call."""
        kept = self._ring
        if kept is None:
            return
        with self._digesting:
            count = self._count
            first = max(self._digested, count - layout.ROWS // 2)  # the rest may be written again meanwhile
            rows = list(kept.rows(first, count))
            with kept.totals():
                for at, fields in rows:
                    self._judge(kept, at, fields)
                kept.add_to_totals(rows)
                kept.put("total_collections", self._phases.collections)
            self._digested = count

    def _judge(self, kept: ring.Ring, at: int, fields: list[int]) -> None:
        limit = self._limit
        step, start, end, *phases, flags = fields
        ns = end - start
        slow = not flags and 0 < limit.ns < ns
        kept.cells[at + _FLAGS] = flags | (layout.OUTLIER if slow else 0) | limit.ns << layout.LIMIT_SHIFT
        if slow:
            kept.count("total_outliers")
            if self._alarms.fires(step, ns):
                waits = (phases[0], phases[1], phases[2], phases[3])
                self._outliers.append(Outlier(step, ns, limit.median_ns, waits, self._rank, self._alarms.lasting))
        if not flags:
            limit.add(ns)

    def _first_step(self) -> None:
        """Nobody knows when the first step began; by its end the rank is known."""
        self.open()
        phases = self._phases
        phases.loop = threading.get_ident()
        phases.watch_torch()
        if phases.others:
            phases.settle_others()
        me = identity.of_this_process(self._settings)
        if self._ring is not None and me["rank"] != self._rank:
            self._rank = me["rank"]
            self._ring.identify(me)

    def _run(self, requester: Escalation | None) -> None:
        batches = 0
        while not self._ended:
            self._wake.wait(BATCH_SECONDS)
            if self._fuse.run("judging steps", self.digest) or self._fuse.blown:
                return
            kept = self._ring
            if kept is not None and batches % MEMORY_BATCHES == 0:
                quietly(_note_memory, kept)
            batches += 1
            while self._outliers and not self._ended:
                outlier = self._outliers.popleft()
                if requester is not None:
                    # A thread of its own waits for the capture: steps are judged meanwhile.
                    threading.Thread(
                        target=warn_on_failure,
                        args=("requesting a capture", self._escalate, requester, outlier),
                        name="stepscope-watch-capture",
                        daemon=True,
                    ).start()

    def _escalate(self, requester: Escalation, outlier: Outlier) -> None:
        try:
            reason = requester.run(outlier)
        except (CaptureError, OSError) as problem:
            escalation.warn(problem)
            return
        kept = self._ring
        if reason is not None and kept is not None:
            kept.count(f"total_captures_{reason}")


def _is_live(path: Path) -> bool:
    from stepscope.watch.rings import head

    found = head(path)
    return found is not None and identity.alive(found, path)


def _note_memory(kept: ring.Ring) -> None:
    torch = sys.modules.get("torch")
    for name in ("cuda", "npu", "xpu"):
        device: Any = getattr(torch, name, None)
        if device is not None and getattr(device, "is_initialized", lambda: False)():
            kept.put("device_bytes", int(device.memory_reserved()))
            return

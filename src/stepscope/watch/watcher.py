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
from stepscope.errors import CaptureError
from stepscope.formats.ring import layout
from stepscope.watch import escalation, exporter, identity, ring
from stepscope.watch.escalation import Escalation, Outlier
from stepscope.watch.phases import Phases
from stepscope.watch.rule import Alarms, Limit
from stepscope.watch.settings import Settings

BATCH_SECONDS = 1.0  # between two looks at the steps that ended
MEMORY_BATCHES = 10
_now = time.monotonic_ns


class Watcher:
    """The watch of one process.

    Args:
        settings: what to do.
        first_step: number of the step that runs now; not 0 after a resume.
    """

    # step() runs between training steps with cold caches, so it writes a row and leaves all that follows to the thread.
    __slots__ = (
        "__weakref__",
        "_alarms",
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
        "step",
        "steps",
    )

    def __init__(self, settings: Settings, first_step: int = 0):
        self._settings = settings
        self.steps = first_step  # number of the step that runs now
        self._fuse = Fuse(self.stop)
        self.step = self._fuse.protect("watching a step", self._step)  # a step has ended
        self._last = 0
        self._was_recording = False
        self._limit, self._alarms, self._phases = Limit(settings.k), Alarms(), Phases()
        self._ring: ring.Ring | None = None
        self._cells: memoryview[int] = memoryview(b"")
        self._count = self._digested = 0  # rows written, and those that the thread has seen
        self._digesting = threading.Lock()
        self._rank = -1
        self._session: Session | None = None
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
        quietly(self._phases.stop)
        quietly(self.digest)
        if self._session is not None:
            quietly(self._session.end)
            self._session = None

    def forget(self) -> None:
        """In a forked child: the parent alone goes on; its ring is shared memory, and its answers are not ours to write."""
        self._ended, self._fuse.blown = True, True
        self._session = self._ring = None
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
            self._session.worker.cur_step = self.steps
        # Whoever sets the watch's folder for a job lets it write there.
        roots = os.environ.get(ROOTS)
        os.environ[ROOTS] = f"{roots}{os.pathsep}{out}" if roots else str(out)
        return Escalation(
            self._settings, control, out, since=time.time(), progress=lambda: (self.steps, self._limit.median_ns / 1e9)
        )

    def _step(self) -> None:
        now, start = _now(), self._last
        self._last = now
        step, phases = self.steps, self._phases
        self.steps = step + 1
        recording = active.running() is not None
        if start:
            other = phases.settle_others() if phases.others else 0
            flags = layout.EVALUATION if other else 0
            if phases.checkpoint:
                flags |= layout.CHECKPOINT
            if recording or self._was_recording:  # the step in which a capture ended was slowed by it too
                flags |= layout.RECORDING
            cells, count = self._cells, self._count
            at = ring.FIRST_ROW + count % layout.ROWS * ring.ROW
            cells[at] = step
            cells[at + 1] = start
            cells[at + 2] = now
            cells[at + 3] = phases.data
            cells[at + 4] = other
            cells[at + 5] = phases.gc
            cells[at + 6] = phases.checkpoint
            cells[at + 7] = flags
            cells[ring.COUNT] = self._count = count + 1
        else:
            self._first_step()
        phases.data = phases.gc = phases.checkpoint = 0
        self._was_recording = recording
        if self._session is not None:
            self._session.step()

    def digest(self) -> None:
        """Judge and count the steps that ended since the last call."""
        kept = self._ring
        if kept is None:
            return
        with self._digesting:
            count = self._count
            first = max(self._digested, count - layout.ROWS // 2)  # the rest may be written again meanwhile
            with kept.totals():
                for number in range(first, count):
                    self._judge(kept, ring.FIRST_ROW + number % layout.ROWS * ring.ROW)
                kept.add_to_totals(first, count)
                kept.put("total_collections", self._phases.collections)
            self._digested = count

    def _judge(self, kept: ring.Ring, at: int) -> None:
        cells, limit = kept.cells, self._limit
        step, ns, flags = cells[at], cells[at + 2] - cells[at + 1], cells[at + 7]
        slow = not flags and 0 < limit.ns < ns
        cells[at + 7] = flags | (layout.OUTLIER if slow else 0) | limit.ns << layout.LIMIT_SHIFT
        if slow:
            kept.count("total_outliers")
            if self._alarms.fires(step, ns):
                phases = (cells[at + 3], cells[at + 4], cells[at + 5], cells[at + 6])
                self._outliers.append(Outlier(step, ns, limit.median_ns, phases, self._rank, self._alarms.lasting))
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

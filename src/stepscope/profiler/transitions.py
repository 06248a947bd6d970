# SPDX-License-Identifier: Apache-2.0
"""What to do between two steps, by the actions of both (docs/formats/profiler-api.md 6)."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.profiler.constants import ProfilerAction


@dataclass(frozen=True)
class Transition:
    """Primitives of the recording in order (`ready` is the user's handler), and the warning to give."""

    work: tuple[str, ...] = ()
    warning: str | None = None


_NONE, _WARMUP, _RECORD, _SAVE = ProfilerAction
_BEGIN = ("init", "start")
_END = ("stop", "finalize", "ready")
_RAW_KEPT = "the recorded steps stay as raw data in {path}: the schedule went on without saving them"

TRANSITIONS: dict[tuple[ProfilerAction, ProfilerAction], Transition] = {
    (_NONE, _NONE): Transition(),
    (_NONE, _WARMUP): Transition(("init", "warmup")),
    (_NONE, _RECORD): Transition(_BEGIN),
    (_NONE, _SAVE): Transition(_BEGIN),
    (_WARMUP, _NONE): Transition(("start", "stop", "finalize"), _RAW_KEPT),
    (_WARMUP, _WARMUP): Transition(),
    (_WARMUP, _RECORD): Transition(("start",)),
    (_WARMUP, _SAVE): Transition(("start",)),
    (_RECORD, _NONE): Transition(("stop", "finalize"), _RAW_KEPT),
    (_RECORD, _WARMUP): Transition((*_END, "init", "warmup"), "the schedule goes from recording to warm-up without saving"),
    (_RECORD, _RECORD): Transition(),
    (_RECORD, _SAVE): Transition(),
    (_SAVE, _NONE): Transition(_END),
    (_SAVE, _WARMUP): Transition((*_END, "init", "warmup")),
    (_SAVE, _RECORD): Transition((*_END, *_BEGIN)),
    (_SAVE, _SAVE): Transition((*_END, *_BEGIN)),
}

# Training ended during a step; the warnings are meant for users of a schedule only.
AT_STOP: dict[ProfilerAction, Transition] = {
    _NONE: Transition(),
    _WARMUP: Transition(("finalize", "delete")),  # said together with the steps that were counted
    _RECORD: Transition(_END, "stopped before the schedule's last recorded step; the data so far were saved"),
    _SAVE: Transition(_END, "stopped during the schedule's last recorded step; the data so far were saved"),
}

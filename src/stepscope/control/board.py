# SPDX-License-Identifier: Apache-2.0
"""Answers of the processes of a job: one small file per process, written by that process alone and read by anyone.

Nothing is shared in memory and nothing is locked, so a killed process leaves only its last answer; a reader notices that the
process is gone.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from stepscope.collect import paths
from stepscope.errors import CaptureError

STATUS_FOLDER = "status"
HEARTBEAT_SECONDS = 10.0
IDLE, WAITING, COLLECTING, DONE, REFUSED, LEFT_OUT = "idle", "waiting", "collecting", "done", "refused", "left out"
ENDED, KILLED, SILENT = "ended", "killed", "silent"
_OVER = (ENDED, KILLED)
_tokens: dict[int, str] = {}


@dataclass(frozen=True)
class Answer:
    """The last reported state of one process.

    `text` is the state in words, `problem` what is wrong with the file or the folder now; `step_seconds` is None until two
    steps have ended.
    """

    rank: int
    host: str
    pid: int
    born: int = 0  # start of the process in ticks of its machine: pids are reused
    namespace: str = ""  # of pids: in another container the same number is another process
    token: str = ""  # of the process: containers of one name on two machines may agree in all of the above
    job: str = ""  # the same for all ranks of a job
    world_size: int = 1
    step: int = 0
    step_seconds: float | None = None
    poll_seconds: float = 2.0
    state: str = IDLE
    text: str = ""
    request_id: str | None = None  # of the request that the state is about
    queued_id: str | None = None  # of the one that waits for the end of the capture
    busy_until: int | None = None  # the step at which the running capture ends
    late: bool = False  # refused, because the step had passed
    capture: str | None = None
    problem: str | None = None

    def file_name(self) -> str:
        return f"{self.host}_{self.pid}_{self.token}.json" if self.token else f"{self.host}_{self.pid}.json"


@dataclass(frozen=True)
class AgedAnswer:
    """An answer and how old it is."""

    answer: Answer
    age_seconds: float

    @property
    def live(self) -> bool:
        return self.answer.state not in (*_OVER, SILENT)


def of_this_process(rank: int, world_size: int) -> Answer:
    pid = os.getpid()
    job = "_".join(os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"))
    return Answer(
        rank,
        socket.gethostname(),
        pid,
        born=start_ticks(pid) or 0,
        namespace=_namespace(),
        token=_tokens.setdefault(pid, secrets.token_hex(4)),  # a fork has a token of its own
        job=job,
        world_size=world_size,
    )


def write(folder: Path, answer: Answer) -> None:
    """Raises OSError when the folder is full, gone or not writable."""
    place = folder / STATUS_FOLDER
    if place.is_symlink():
        raise CaptureError("will not write through a symbolic link", where=str(place), cause="it is a symbolic link")
    if not place.is_dir():
        paths.ensure_folder(place)
    paths.write_file(place / answer.file_name(), json.dumps(asdict(answer)).encode())


def write_over(folder: Path, answer: Answer) -> None:
    """Overwrite the existing file in place: this works on a full disk too, as its block is already allocated."""
    with open(folder / STATUS_FOLDER / answer.file_name(), "r+b") as file:
        file.write(json.dumps(asdict(answer)).encode())
        file.truncate()


def clear_leftovers(folder: Path) -> None:
    """Remove answers of processes of this machine that ended or were killed, when a new job begins."""
    # Reads this machine's files only: each of thousands of ranks does this.
    for aged, path in _files(folder, f"{socket.gethostname()}_*.json"):
        if aged.answer.state in _OVER:
            path.unlink(missing_ok=True)


def read(folder: Path) -> list[AgedAnswer]:
    """All answers by rank; an ended process is listed until another process has its rank."""
    found = [aged for aged, _ in _files(folder)]
    ranks_in_use = {aged.answer.rank for aged in found if aged.live}
    kept = [aged for aged in found if aged.live or aged.answer.rank not in ranks_in_use]
    return sorted(kept, key=lambda aged: (aged.answer.rank, aged.age_seconds))


def folder_seconds(folder: Path) -> float:
    """Now, by the clock that stamps files in this folder: machines that share it may disagree about the time."""
    probe = folder / f".clock.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        probe.touch()
        try:
            return probe.stat().st_mtime
        finally:
            probe.unlink()
    except OSError:
        return time.time()  # the folder is read-only


def _files(folder: Path, names_like: str = "*.json") -> list[tuple[AgedAnswer, Path]]:
    found = []
    names = sorted((folder / STATUS_FOLDER).glob(names_like))
    now = folder_seconds(folder) if names else 0.0
    for path in names:
        try:
            age = max(0.0, now - path.stat().st_mtime)
            answer = _answer(json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError):
            continue  # being replaced, or not one of ours
        found.append((AgedAnswer(_with_liveness(answer, age), age), path))
    return found


def _answer(content: dict[str, Any]) -> Answer:
    known = {item.name for item in fields(Answer)}
    return Answer(**{name: value for name, value in content.items() if name in known})


def _with_liveness(answer: Answer, age: float) -> Answer:
    """The answer, marked as killed or silent if its process no longer writes."""
    if answer.state == ENDED:
        return answer
    here = answer.host == socket.gethostname() and answer.namespace == _namespace()
    if here and start_ticks(answer.pid) != answer.born:
        return replace(answer, state=KILLED, text=f"the process was killed; before that: {_before(answer)}")
    if age > 3 * max(HEARTBEAT_SECONDS, answer.poll_seconds):
        return replace(answer, state=SILENT, text=f"no answer for {age:.0f} s; before that: {_before(answer)}")
    return answer


def _before(answer: Answer) -> str:
    return f"{answer.state}, {answer.text}" if answer.text else answer.state


def start_ticks(pid: int) -> int | None:
    """When a process of this machine started; None when it does not run (a zombie does not)."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def of_ranks(answers: Sequence[AgedAnswer], ranks: Sequence[int] | None) -> list[AgedAnswer]:
    return [aged for aged in answers if ranks is None or aged.answer.rank in ranks]

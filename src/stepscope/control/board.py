# SPDX-License-Identifier: Apache-2.0
"""What each process of a job answers: one small file per process, written by it alone and read by whoever asks.

Nothing is shared in memory and nothing is locked, so a killed process leaves no more than its last answer; who reads it finds
out that the process is gone.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from stepscope.collect import paths

STATUS_FOLDER = "status"
HEARTBEAT_SECONDS = 10.0
IDLE, WAITING, COLLECTING, DONE, REFUSED, LEFT_OUT = "idle", "waiting", "collecting", "done", "refused", "left out"
ENDED, KILLED, SILENT = "ended", "killed", "silent"
_OVER = (ENDED, KILLED)


@dataclass(frozen=True)
class Answer:
    """The state of one process, as it said it last.

    `text` is the state in words, `problem` what is wrong with the file or the folder now; `step_seconds` is None until two
    steps were seen.
    """

    rank: int
    host: str
    pid: int
    born: int = 0  # start of the process in ticks of its machine: pids come back
    namespace: str = ""  # of pids: in another container the same number is another process
    job: str = ""  # the same for all ranks of a job
    world_size: int = 1
    step: int = 0
    step_seconds: float | None = None
    poll_seconds: float = 2.0
    state: str = IDLE
    text: str = ""
    request_id: str | None = None  # of the request that the state is about
    queued_id: str | None = None  # of the one that waits until the capture is over
    busy_until: int | None = None  # the step at which the capture that runs is over
    late: bool = False  # refused, because the step had passed
    capture: str | None = None
    problem: str | None = None

    def file_name(self) -> str:
        return f"{self.host}_{self.pid}.json"


@dataclass(frozen=True)
class Seen:
    """An answer and how old it is."""

    answer: Answer
    age_seconds: float

    @property
    def live(self) -> bool:
        return self.answer.state not in (*_OVER, SILENT)


def of_this_process(rank: int, world_size: int) -> Answer:
    pid = os.getpid()
    job = "_".join(os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"))
    return Answer(rank, socket.gethostname(), pid, born=_born(pid) or 0, namespace=_namespace(), job=job, world_size=world_size)


def write(folder: Path, answer: Answer) -> None:
    """Raises OSError when the folder is full, gone or not ours to write."""
    place = folder / STATUS_FOLDER
    if not place.is_dir():
        paths.ensure_folder(place)
    paths.write_file(place / answer.file_name(), json.dumps(asdict(answer)).encode())


def write_over(folder: Path, answer: Answer) -> None:
    """Write into the file that is there: on a full disk its own block is still ours."""
    with open(folder / STATUS_FOLDER / answer.file_name(), "r+b") as file:
        file.write(json.dumps(asdict(answer)).encode())
        file.truncate()


def clear_leftovers(folder: Path) -> None:
    """Remove answers of processes of this machine that ended or were killed, when a new job begins."""
    # Only this machine's files are read: each of thousands of ranks comes here.
    for seen, path in _files(folder, f"{socket.gethostname()}_*.json"):
        if seen.answer.state in _OVER:
            path.unlink(missing_ok=True)


def read(folder: Path) -> list[Seen]:
    """All answers by rank; those of ended processes only while no later process has taken the rank over."""
    found = [seen for seen, _ in _files(folder)]
    taken = {seen.answer.rank for seen in found if seen.live}
    kept = [seen for seen in found if seen.live or seen.answer.rank not in taken]
    return sorted(kept, key=lambda seen: (seen.answer.rank, seen.age_seconds))


def folder_seconds(folder: Path) -> float:
    """Now, by the clock that stamps files in this folder: machines that share it may disagree about the time."""
    probe = folder / f".clock.{socket.gethostname()}.{os.getpid()}"
    try:
        probe.touch()
        try:
            return probe.stat().st_mtime
        finally:
            probe.unlink()
    except OSError:
        return time.time()  # a folder that may only be read


def _files(folder: Path, names_like: str = "*.json") -> list[tuple[Seen, Path]]:
    found = []
    names = sorted((folder / STATUS_FOLDER).glob(names_like))
    now = folder_seconds(folder) if names else 0.0
    for path in names:
        try:
            age = max(0.0, now - path.stat().st_mtime)
            answer = _parsed(json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError):
            continue  # being replaced, or not one of ours
        found.append((Seen(_judged(answer, age), age), path))
    return found


def _parsed(content: dict[str, Any]) -> Answer:
    known = {item.name for item in fields(Answer)}
    return Answer(**{name: value for name, value in content.items() if name in known})


def _judged(answer: Answer, age: float) -> Answer:
    """An answer of a process that cannot speak for itself any more says so."""
    if answer.state == ENDED:
        return answer
    here = answer.host == socket.gethostname() and answer.namespace == _namespace()
    if here and _born(answer.pid) != answer.born:
        return replace(answer, state=KILLED, text=f"the process was killed; before that: {_before(answer)}")
    if age > 3 * max(HEARTBEAT_SECONDS, answer.poll_seconds):
        return replace(answer, state=SILENT, text=f"nothing heard for {age:.0f} s; before that: {_before(answer)}")
    return answer


def _before(answer: Answer) -> str:
    return f"{answer.state}, {answer.text}" if answer.text else answer.state


def _born(pid: int) -> int | None:
    """When a process of this machine started; None when there is none (a zombie is none)."""
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


def of_ranks(answers: Sequence[Seen], ranks: Sequence[int] | None) -> list[Seen]:
    return [seen for seen in answers if ranks is None or seen.answer.rank in ranks]

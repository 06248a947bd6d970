# SPDX-License-Identifier: Apache-2.0
"""A process beside the job that serves and sends metrics of all ranks of this machine, and ends with the job."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from stepscope import child_process
from stepscope.collect import messages
from stepscope.control import board
from stepscope.errors import CaptureError
from stepscope.watch import otlp
from stepscope.watch.server import Place, Server
from stepscope.watch.settings import Settings

LOOK_SECONDS = 1.0


def start(settings: Settings) -> None:
    """Start it for this process; it ends when this process does, however that happens."""
    words = [str(settings.ring_folder()), str(settings.port or ""), settings.otlp, str(settings.histogram), str(os.getpid())]
    environment = {name: value for name, value in child_process.environment().items() if not name.startswith("STEPSCOPE_")}
    # A session of its own: Ctrl-C in the terminal is for the job, whose end it then notices.
    subprocess.Popen(
        child_process.command("stepscope.watch.exporter:main", *words),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def main(folder: str, port: str, address: str, histogram: str, pid: str) -> int:
    """The process that `start` starts; on a port that is taken, such as by another job, it says so and ends."""
    place = Place(port=int(port)) if port else None
    try:
        serve(
            Path(folder),
            place,
            otlp.endpoint(address) if address else "",
            histogram=histogram == "True",
            pid=int(pid),
            say=messages.info,
        )
    except CaptureError as problem:
        messages.warning(f"stepscope.watch serves no metrics: {problem.what}: {problem.cause} ({problem.where})")
        return 3
    return 0


def serve(folder: Path, place: Place | None, address: str, *, histogram: bool, pid: int | None, say: Callable[[str], None]) -> None:
    """Serve and send until interrupted, or until process `pid` has ended.

    Raises:
        CaptureError: the address cannot be used, or nothing is to be done.
    """
    if place is None and not address:
        raise CaptureError("nothing to serve and nowhere to send", where=str(folder), fix="give --port or --otlp")
    born = board.start_ticks(pid) if pid is not None else None
    ended = threading.Event()
    server = Server(folder, place, histogram=histogram) if place is not None else None
    if server is not None:
        threading.Thread(target=server.run, name="stepscope-metrics", daemon=True).start()
        say(f"metrics of {folder}: {server.url}")
    if address:
        sending = {"histogram": histogram, "going": lambda seconds: not ended.wait(seconds), "report": say}
        threading.Thread(target=otlp.push_for_ever, args=(folder, address), kwargs=sending, daemon=True).start()
        say(f"metrics of {folder} are sent to {address}")
    try:
        while pid is None or board.start_ticks(pid) == born:
            ended.wait(LOOK_SECONDS)
    finally:
        ended.set()
        if server is not None:
            server.close()

# SPDX-License-Identifier: Apache-2.0
"""Profile inference servers over HTTP: vLLM and SGLang answer to POST /start_profile and /stop_profile; all nodes at once."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from stepscope.errors import CaptureError

START, STOP, HEALTH = "start_profile", "stop_profile", "health"
TIMEOUT_SECONDS = 30.0
STOP_TIMEOUT_SECONDS = 600.0  # a server writes its trace before it answers
MOST_AT_ONCE = 64
_SHOWN = 200  # characters of an answer


@dataclass(frozen=True)
class ServerAnswer:
    """What one node said: `status` is None where it did not answer."""

    server: str
    request: str
    status: int | None
    text: str
    seconds: float

    @property
    def good(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def addresses(text: str) -> tuple[str, ...] | None:
    """The servers in `http://a:8000,http://b:8000`; None where the text is a path.

    Raises:
        CaptureError: some parts are addresses of servers and some are not.
    """
    parts = [part.strip().rstrip("/") for part in text.split(",") if part.strip()]
    found = [_is_address(part) for part in parts]
    if not any(found):
        return None
    if not all(found):
        wrong = next(part for part, good in zip(parts, found, strict=True) if not good)
        raise CaptureError(f"{wrong!r} is not the address of a server", fix="give http://host:port, with commas between several")
    return tuple(dict.fromkeys(parts))


def ask_all(
    servers: Sequence[str],
    request: str,
    *,
    body: Mapping[str, Any] | None = None,
    token: str | None = None,
    seconds: float | None = None,
) -> list[ServerAnswer]:
    """Send one request to all servers at the same time; gives their answers in the same order."""
    with ThreadPoolExecutor(min(len(servers), MOST_AT_ONCE)) as pool:
        return list(pool.map(lambda server: _ask(server, request, body, token, seconds), servers))


def record(
    servers: Sequence[str],
    seconds: float,
    *,
    body: Mapping[str, Any] | None = None,
    token: str | None = None,
    timeout: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[list[ServerAnswer], list[ServerAnswer]]:
    """Profile all servers for some seconds; those that could be started are stopped, whatever happens meanwhile."""
    started = ask_all(servers, START, body=body, token=token, seconds=timeout)
    running = [answer.server for answer in started if answer.good]
    stopped: list[ServerAnswer] = []
    try:
        if running:
            sleep(seconds)
    finally:
        if running:
            stopped = ask_all(running, STOP, token=token, seconds=timeout)
    return started, stopped


def _ask(server: str, request: str, body: Mapping[str, Any] | None, token: str | None, seconds: float | None) -> ServerAnswer:
    limit = seconds or (STOP_TIMEOUT_SECONDS if request == STOP else TIMEOUT_SECONDS)
    content = None if request == HEALTH else b"" if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    asked = urllib.request.Request(f"{server}/{request}", content, headers, method="GET" if content is None else "POST")
    # Nodes are reached directly: a proxy of this machine knows nothing about them.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    began = time.monotonic()
    try:
        with opener.open(asked, timeout=limit) as answer:
            status, text = answer.status, answer.read(1 << 16)
    except urllib.error.HTTPError as problem:
        status, text = problem.code, problem.read(1 << 16)
        if problem.code == 404 and request in (START, STOP):
            text = b"the server has no such route: start it with its profiler on"
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", problem)
        return ServerAnswer(server, request, None, f"no answer: {reason}", time.monotonic() - began)
    said = " ".join(text.decode("utf-8", "replace").split())[:_SHOWN]
    return ServerAnswer(server, request, status, said, time.monotonic() - began)


def _is_address(text: str) -> bool:
    try:
        found = urlsplit(text)
        return found.scheme in ("http", "https") and bool(found.hostname) and found.port is not False
    except ValueError:
        return False

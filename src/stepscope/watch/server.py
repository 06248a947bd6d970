# SPDX-License-Identifier: Apache-2.0
"""`GET /metrics` and `GET /healthz` for all ranks of a machine; beyond loopback only with a bearer token."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.errors import CaptureError
from stepscope.watch import text
from stepscope.watch.metrics import families
from stepscope.watch.rings import live_states

LOOPBACK = "127.0.0.1"
LEAST_TOKEN = 16
THREADS, CONNECTIONS, IDLE_SECONDS = 2, 200, 15
_Answer = tuple[str, str, bytes]


@dataclass(frozen=True)
class Place:
    """Where to listen, and the token that is asked for; None: none."""

    host: str = LOOPBACK
    port: int = 0
    token: str | None = None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(path: Path) -> str:
    """The token in a file.

    Raises:
        CaptureError: there is none, or one that can be guessed.
    """
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise CaptureError("the file of the token cannot be read", where=str(path), cause=str(problem)) from problem
    if len(token) < LEAST_TOKEN or not token.isascii() or any(letter.isspace() for letter in token):
        raise CaptureError(
            "the token cannot be used",
            where=str(path),
            cause=f"it needs at least {LEAST_TOKEN} letters, without spaces",
            fix=f"openssl rand -hex 32 > {path}; chmod 600 {path}",
        )
    return token


def app(folder: Path, token: str | None, *, histogram: bool = True) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """The WSGI application."""

    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        status, kind, body = respond(environ)
        headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
        if status.startswith("401"):
            headers.append(("WWW-Authenticate", "Bearer"))
        if status.startswith("405"):
            headers.append(("Allow", "GET, HEAD"))
        start(status, headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def respond(environ: dict[str, Any]) -> _Answer:
        plain = "text/plain; charset=utf-8"
        if token is not None and not _carries(environ.get("HTTP_AUTHORIZATION", ""), token):
            return "401 Unauthorized", plain, b"a bearer token is needed\n"
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", plain, b"only GET\n"
        if environ["PATH_INFO"] == "/healthz":
            return "200 OK", plain, b"ok\n"
        if environ["PATH_INFO"] != "/metrics":
            return "404 Not Found", plain, b"only /metrics and /healthz\n"
        openmetrics = text.wants_openmetrics(environ.get("HTTP_ACCEPT", ""))
        body = text.render(families(live_states(folder), histogram=histogram), openmetrics=openmetrics)
        return "200 OK", text.OPEN if openmetrics else text.PLAIN, body

    return answer


class Server:
    """Serves the rings of a folder; `run()` until `close()`.

    Raises:
        CaptureError: the address cannot be used, or is open to others without a token.
    """

    def __init__(self, folder: Path, place: Place, *, histogram: bool = True):
        from waitress.server import create_server

        if not is_loopback(place.host) and place.token is None:
            raise CaptureError(
                "beyond this machine metrics are served with a token only",
                where=f"--bind {place.host}",
                fix="give --token-file FILE, and the same token to Prometheus (authorization.credentials_file)",
            )
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, protocol)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
            except OSError:
                listener.close()
                raise
        except OSError as problem:
            raise CaptureError(
                "the address cannot be used",
                where=f"{place.host}:{place.port}",
                cause=problem.strerror or str(problem),
                fix="give another --port, or end what listens there",
            ) from None
        self.port = int(listener.getsockname()[1])
        shown = f"[{place.host}]" if ":" in place.host else place.host
        self.url = f"http://{shown}:{self.port}/metrics"
        self._closing = False
        self._server = create_server(
            app(folder, place.token, histogram=histogram),
            sockets=[listener],
            threads=THREADS,
            ident=None,
            max_request_body_size=1 << 16,
            connection_limit=CONNECTIONS,
            channel_timeout=IDLE_SECONDS,
            cleanup_interval=5,
            asyncore_use_poll=True,
        )

    def run(self) -> None:
        try:
            self._server.run()
        except (OSError, ValueError):
            if not self._closing:  # else: the loop looked at a socket that was being closed
                raise

    def close(self) -> None:
        self._closing = True
        self._server.close()


def _carries(header: str, token: str) -> bool:
    kind, _, given = header.partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())

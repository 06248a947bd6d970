# SPDX-License-Identifier: Apache-2.0
"""The viewer as a server of its own."""

from __future__ import annotations

import logging
import resource
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from waitress.server import create_server

from stepscope.errors import CaptureError
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue
from stepscope.web.guard import LOOPBACK, is_loopback
from stepscope.web.request import Settings

THREADS = 8
# A request takes a thread only once it is whole, so what blocks others is the number of connections: with waitress's default
# of 100 that many half-sent requests stop everybody else for two minutes.
MOST_CONNECTIONS = 2000
IDLE_SECONDS = 30  # until a connection without a whole request is closed
CLEANUP_SECONDS = 5
DESCRIPTORS_BESIDE = 200  # of files and stores
ENDING_SECONDS = 0.3  # that requests in flight are given when the server is closed
WIDE = ("0.0.0.0", "::", "")


@dataclass(frozen=True)
class Address:
    host: str = "127.0.0.1"
    port: int = 0  # 0 = any that is free
    with_token: bool = True


class Server:
    """A server: open `url`, and `run()` until interrupted."""

    def __init__(self, paths: Sequence[Path], address: Address, settings: Settings):
        token = None if is_loopback(address.host) or not address.with_token else secrets.token_urlsafe(24)
        self.catalogue = Catalogue(paths, follow_links=settings.follow_links)
        app = App(
            self.catalogue,
            replace(settings, hosts=names_of(address.host), token=token),
        )
        self._closing = False
        listener = listen(address)
        self.port = int(listener.getsockname()[1])
        self._server = create_server(
            app,
            sockets=[listener],
            threads=THREADS,
            ident=None,
            max_request_body_size=2 << 20,
            connection_limit=most_connections(),
            channel_timeout=IDLE_SECONDS,
            cleanup_interval=CLEANUP_SECONDS,
            asyncore_use_poll=True,  # select() knows no descriptors above 1023
        )
        shown = "localhost" if address.host in WIDE else address.host
        shown = f"[{shown}]" if ":" in shown else shown
        self.url = f"http://{shown}:{self.port}/" + (f"?token={quote(token)}" if token else "")

    def run(self) -> None:
        """Serve until interrupted, or closed from another thread."""
        try:
            self._server.run()
        except (OSError, ValueError):
            if not self._closing:  # else: the loop looked at a socket that was being closed
                raise
        finally:
            self.close()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._end_requests()
            self._server.close()
            self.catalogue.close()

    def _end_requests(self) -> None:
        """What takes longer finds its connection closed: nobody waits for the answer, so nobody is told."""
        requests = self._server.task_dispatcher
        requests.logger = logging.Logger("ended", logging.CRITICAL + 1)
        requests.shutdown(timeout=ENDING_SECONDS)


def most_connections() -> int:
    """As many as there are descriptors for; the soft limit of descriptors is raised where that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + DESCRIPTORS_BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(100, min(MOST_CONNECTIONS, soft - DESCRIPTORS_BESIDE))


def listen(address: Address) -> socket.socket:
    """A socket at the address; waitress leaves its own open where this fails."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
        except OSError:
            listener.close()
            raise
    except OSError as problem:
        raise CaptureError(
            "the address cannot be used",
            where=f"{address.host}:{address.port}",
            cause=problem.strerror or str(problem),
            fix="give another --port (or none for any that is free), or another --host",
        ) from None
    return listener


def names_of(host: str) -> frozenset[str] | None:
    """The names under which a server bound to `host` answers; bound to all addresses it has too many, and a token instead."""
    if host in WIDE:
        return None
    if is_loopback(host):
        return frozenset({host.lower(), *LOOPBACK})
    return frozenset({host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()} - set(LOOPBACK))

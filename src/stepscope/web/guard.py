# SPDX-License-Identifier: Apache-2.0
"""Who may ask, and for which files: hosts, tokens and paths (docs/reference/viewer.md 10)."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from stepscope.web.problems import Problem

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def inside(root: Path, path: str, *, follow_links: bool = False) -> Path:
    """The file of a path that a user gave, which must lie below `root`; the one check for all such paths.

    Raises:
        Problem: the path is absolute, leads out of `root` or holds what no path of ours holds.
    """
    outside = Problem(403, "outside", "this path is outside the folder that is shown")
    parts = path.split("/")
    if not path or path.startswith(("/", "~")) or any(part in ("", ".", "..") for part in parts):
        raise outside
    if any(ord(letter) < 32 or letter in "\\%:" for letter in path) or len(path) > 4096:
        raise outside
    base = Path(os.path.realpath(root))
    target = base.joinpath(*parts)
    real = Path(os.path.realpath(target))
    if not follow_links and not real.is_relative_to(base):  # a link on the way may lead elsewhere inside, not out
        raise outside
    return real


def host_name(header: str) -> str:
    """Name in a Host header, without the port."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if text.count(":") == 1 else text


def is_loopback(host: str) -> bool:
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(header: str, allowed: Collection[str]) -> None:
    """Refuse names that are not ours: a foreign page may have its own name lead here (DNS rebinding)."""
    if host_name(header) not in allowed:
        raise Problem(403, "foreign_host", "this server does not answer under that name", hint="use the address that it printed")


def check_origin(headers: Mapping[str, str], host: str) -> None:
    """Refuse what another page sends here on its own account.

    Another port of this machine is the same site but another page, so `same-site` is refused as `cross-site` is. A
    browser that sends neither `Sec-Fetch-Site` nor `Origin` is not a browser in use today; scripts send neither.
    """
    foreign = Problem(403, "foreign_origin", "requests from other pages are refused")
    if headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise foreign
    origin = headers.get("Origin", "")
    if origin and origin != "null":
        if host and urlsplit(origin).netloc.lower() != host.lower():
            raise foreign
    elif origin == "null":
        raise foreign


def cookie_name(token: str) -> str:
    """One name per token: browsers share cookies among all ports of a host, and several servers may run on it."""
    return f"stepscope_token_{hashlib.sha256(token.encode()).hexdigest()[:8]}"


def check_token(token: str, candidates: Collection[str]) -> None:
    if not any(hmac.compare_digest(token.encode(), one.encode("utf-8", "replace")) for one in candidates):
        raise Problem(401, "token", "a token is needed", hint="open the address with ?token=… that the server printed")

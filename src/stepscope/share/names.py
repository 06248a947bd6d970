# SPDX-License-Identifier: Apache-2.0
"""Find names of machines, people and folders in a text, in all the forms in which programs write them.

Names become short hashes with a salt that is nowhere written: equal names stay equal inside one pack, and cannot be looked up.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import secrets
import unicodedata
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote

SHORT = 5  # letters; so short a name is taken for one only where it stands alone
_LEAST = 2
_MOST_NODES = 20_000
_EVERYWHERE = frozenset({"root", "localhost"})  # name nobody

_HASH = r"h:[0-9a-f]{10}"  # what stands for a name inside a path
_REST = rf"(?:{_HASH}|[^\s:;,\"'()<>|\[\]{{}}])*"
_ROOTS = "home|root|Users|usr|opt|data|mnt|tmp|var|work|share|srv|scratch|nfs|export"
_BEGIN = rf"(?:\w+://|[A-Za-z]:[\\/]|\\\\|~(?:{_HASH}|[\w.-])*/|\.{{1,2}}/|/(?=[^/\s]))"
# One pass over all forms, because what one of them leaves must not be read by another:
_PATH = re.compile(
    "|".join(
        (
            rf"(?<=[\"'])(?:{_BEGIN})[^\"'\n]+(?=[\"'])",  # in quotes, with blanks
            rf"^(?:{_BEGIN})[^:;\n\"]*[/\\][^/\\:;\n\"]*\.\w{{1,8}}$",  # a whole text
            r"(?:[A-Za-z]:[\\/]|~?/|\.{1,2}/)[^;\n\r\"(]*(?=\(\d+\))",  # a frame of a stack, whose file may have blanks
            # Not after a letter: `Default/network-Train/Conv2D` is an operator.
            rf"(?<![A-Za-z0-9_/\\]){_BEGIN}{_REST}",
            # A file below folders.
            rf"(?<![A-Za-z0-9_/\\])(?:(?:{_HASH}|[\w.@+-])+[/\\])+(?:{_HASH}|[\w.@+-])*\.[A-Za-z]\w{{0,4}}(?![\w/])",
            rf"/(?:{_ROOTS})/{_REST}",  # folders that every machine has, anywhere
        )
    )
)
USER = re.compile(r"(?:^|[/\\])(?:home|Users|users|export/home)[/\\]([^/\\\s:;,\"'()]+)|(?<![\w/])~([\w.-]+)/")
# Names behind words of command lines, environments, addresses and errors. `Enqueue@aten::add` names nobody.
_NAME = r"(?:[\w.-]+@)?[\w.-]+"
_NAMED_BY = re.compile(
    "|".join(
        (
            (
                r"--?(?:master|node|host|server|rdzv|dist|init|user|remote)\w*(?:[-_](?:addr(?:ess)?|endpoint|name|ip|url|host|list)s?)?"
                rf"[ =]+({_NAME})"
            ),
            rf"\b(?:ssh|scp|sftp|rsync)\s+(?:-\S+\s+(?:\d+\s+)?)*({_NAME})",
            rf"\b[a-z][a-z0-9+]*://(?:[\w.-]+:[^@/\s]*@)?({_NAME})(?=[:/]|\W|$)",
            r"\b\w*(?:HOST|NODE|NODELIST|USER|LOGNAME|MASTER|SERVER|POD)(?:_?(?:NAME|ADDR|IP|ID|LIST))?=['\"]?([\w.,@\[\]-]+)",
            rf"\b(?:resolve|resolving|connect(?:ed|ing|ion)? to|refused by|reach)\s+(?:host(?:name)?\s+)?['\"]?({_NAME})",
        )
    )
)
# What only such texts hold, for the engine to look first.
MAY_NAME = r"(?:--?\w|://|ssh |scp |sftp |rsync |[A-Z]=|[Rr]esolv|connect|refused|reach)"
_NOBODY = re.compile(
    "localhost|env|auto|static|tcp|https?|file|the|host|hostname|server|peer|rank|device|store|any|all", re.IGNORECASE
)
_RANGE = re.compile(r"([\w.-]*?)\[([\d,-]+)\]")
_IPV4 = r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"
_MAC = r"(?<![\w:])(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}(?![\w:])"
_MAIL = r"[\w.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
_ADDRESS = re.compile(f"{_IPV4}|{_MAC}|{_MAIL}")
_IPV6 = re.compile(r"(?<![\w:])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:])")


def named_in(text: str) -> Iterator[str]:
    """Machines and people that a command line, an environment, an address or an error names."""
    for found in _NAMED_BY.finditer(text):
        yield from split_names(next(filter(None, found.groups())))


def split_names(value: str) -> Iterator[str]:
    """The single names of `eve@node1:29500`, `node1,node2` and Slurm's `node[01-16]`."""
    for name in re.split(r"[\s,;@](?![^\[]*\])", value):
        spread = _RANGE.fullmatch(name)
        for one in _spread(*spread.groups()) if spread else (re.sub(r":\d*$", "", name),):
            if len(one) > _LEAST and not _NOBODY.fullmatch(one) and re.search(r"[^\W\d]", one):
                yield one
                yield one.partition(".")[0]


def _spread(stem: str, numbers: str) -> Iterator[str]:
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            for number in range(int(first), min(int(last or first), int(first) + _MOST_NODES) + 1):
                yield f"{stem}{number:0{len(first)}d}"


class Names:
    """What stands for the names of one pack.

    Args:
        hosts: names of machines and process groups.
        users: names of people.
        named: names of either that only the words before them tell; they are taken for one only where they stand alone.
        paths: whether paths go.
        addresses: whether addresses of machines and people go.
        base_names: whether names of files stay.
    """

    def __init__(
        self,
        *,
        hosts: Iterable[str] = (),
        users: Iterable[str] = (),
        named: Iterable[str] = (),
        paths: bool = False,
        addresses: bool = False,
        base_names: bool = True,
        salt: str | None = None,
    ):
        self._paths, self._addresses, self._base_names = paths, addresses, base_names
        self._salt = salt or secrets.token_hex(16)
        machines, people = _known(hosts), _known(users)
        # The rest of a machine's full name goes with its first part.
        forms = {name: f"{_pattern(name)}(?:\\.[A-Za-z0-9-]+)*" for name in machines} | {
            name: _pattern(name) for name in people - machines
        }
        forms |= {name: _alone(name) for name in _known(named) - forms.keys()}
        ordered = sorted(forms, key=lambda name: (-len(name), name))
        self._pattern = re.compile("|".join(forms[name] for name in ordered), re.IGNORECASE) if forms else None

    def replace(self, text: str) -> str:
        """A text without the names."""
        text = text.replace("\0", "")  # of texts in UTF-16 that were read as bytes
        if self._pattern is not None:
            text = self._pattern.sub(lambda found: self.hash("h", found[0].lower()), text)
        if self._addresses:
            text = _ADDRESS.sub(lambda found: self.hash("h", found[0]), text)
            text = _IPV6.sub(lambda found: self.hash("h", found[0]) if _is_ipv6(found[0]) else found[0], text)
        if self._paths and ("/" in text or "\\" in text):
            text = _PATH.sub(lambda found: self._path(found[0]), text)
        return text

    def hash(self, kind: str, name: str) -> str:
        if not name:
            return name
        return f"{kind}:{hashlib.sha256(f'{self._salt}{name}'.encode('utf-8', 'surrogateescape')).hexdigest()[:10]}"

    def _path(self, path: str) -> str:
        folder, _, base = path.replace("\\", "/").rpartition("/")
        if not self._base_names or "." not in base.strip("."):  # only names of files stay
            return self.hash("p", path)
        return f"{self.hash('p', folder)}/{base}"


def _known(names: Iterable[str]) -> set[str]:
    """Names that are long enough to be some, in the forms in which programs write them."""
    known: set[str] = set()
    for name in names:
        for plain in {name, unquote(name)}:
            if len(plain) < _LEAST or plain.isdigit() or plain.lower() in _EVERYWHERE:
                continue
            for form in ("NFC", "NFD"):
                one = unicodedata.normalize(form, plain)
                known |= {one, quote(one), json.dumps(one)[1:-1]}
    return known


def _pattern(name: str) -> str:
    return re.escape(name) if len(name) > SHORT else _alone(name)


def _alone(name: str) -> str:
    return rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"


def _is_ipv6(text: str) -> bool:
    """Whether a text is an address: `c10::d` could be one, but is a name of C++."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return len(text.partition(":")[0]) == 4 or text.count(":") > 3

# SPDX-License-Identifier: Apache-2.0
"""Captures of our own give the tables, files and output that they gave before; `make bless` takes a change for right."""

from __future__ import annotations

import difflib
import functools

import pytest
import snapshot
from snapshot import PARTS

NAMES = snapshot.names()


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    return functools.cache(lambda name: snapshot.take(name, tmp_path_factory.mktemp(name)))


@pytest.mark.parametrize(("name", "part"), [(name, part) for name in NAMES for part in PARTS])
def test_nothing_is_missing_or_new(name, part, taken):
    expected = snapshot.read(snapshot.place(name, part))
    assert list(taken(name)[part]) == list(expected), "look at it, then run `make bless`"


@pytest.mark.parametrize(
    ("name", "part", "title"),
    [(name, part, title) for name in NAMES for part in PARTS for title in snapshot.read(snapshot.place(name, part))],
)
def test_section(name, part, title, taken):
    expected = snapshot.read(snapshot.place(name, part))[title]
    found = taken(name)[part].get(title, "")
    if found != expected:
        difference = difflib.unified_diff(expected.splitlines(), found.splitlines(), "expected", "found", lineterm="", n=1)
        pytest.fail("\n".join([f"{name}: {title}", *difference, "if this is meant: make bless"]), pytrace=False)

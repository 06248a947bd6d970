# SPDX-License-Identifier: Apache-2.0
"""The committed bundle is what the source builds, small enough, and asks nobody else for anything."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from viewer.page import absent

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
STATIC = ROOT / "src" / "stepscope" / "web" / "static"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow  # npm and a whole build
def test_bundle_is_built_from_the_source(tmp_path: Path) -> None:
    if not shutil.which("npm"):
        absent("node with npm")
    environment = {**os.environ, "npm_config_update_notifier": "false"}
    if not (WEB / "node_modules" / ".bin" / "vite").exists():
        subprocess.run(["npm", "ci"], cwd=WEB, check=True, capture_output=True, env=environment)
    built = tmp_path / "static"
    command = ["npx", "vite", "build", "--outDir", str(built), "--emptyOutDir"]
    done = subprocess.run(command, cwd=WEB, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    fresh, committed = files(built), files(STATIC)
    assert sorted(fresh) == sorted(committed), "run `make web` and commit src/stepscope/web/static"
    assert [name for name in fresh if fresh[name] != committed[name]] == [], "run `make web` and commit src/stepscope/web/static"


def first_load() -> set[str]:
    """Files that the page needs before any view: the entry, what it imports at once, and the styles."""
    found = {"index.html", "style.css"}
    waiting = ["standalone.js"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        text = (STATIC / name).read_text()
        waiting += re.findall(r'(?:^|[;}\s])(?:import|export)\s*(?:[\w*{][^"\'`;()]*?from\s*)?["\'`]\./([\w.-]+\.js)["\'`]', text)
        waiting += re.findall(r'from\s*["\'`]\./([\w.-]+\.js)["\'`]', text)
    return found


def test_sizes() -> None:
    first = {name: len(gzip.compress((STATIC / name).read_bytes())) for name in first_load()}
    assert sum(first.values()) <= 60_000, first
    assert not any("memory" in name for name in first), "charts load when they are wanted"
    assert sum(len(data) for data in files(STATIC).values()) <= 1_500_000


def test_nothing_from_elsewhere() -> None:
    # Names of XML dialects, links to pages for people, and nothing else.
    harmless = re.compile(r"https?://(www\.w3\.org/|preactjs\.com|github\.com|localhost)")
    for name, data in files(STATIC).items():
        text = data.decode("utf-8")
        hosts = [match for match in re.findall(r"https?://[\w.-]+[^\s\"'`)]*", text) if not harmless.match(match)]
        assert hosts == [], f"{name} names another host"
        assert "eval(" not in text
        assert not re.search(r"new Function\b", text)


def test_page_has_no_inline_script() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r'(?:src|href)="(?!\./)', page) == []


def test_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (WEB / "package-lock.json").read_text()

# SPDX-License-Identifier: Apache-2.0
"""Checking a file leaves the memory of the process alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepscope.tables import sealed_folder
from stepscope.tables.sealed_folder import Damaged, SealedFolder, seal

SIZE = (4 << 20) + 17  # mapped, and no multiple of what is read at once


def resident(path: Path) -> int:
    """Bytes of the file that are in this process."""
    maps = Path("/proc/self/smaps").read_text().split("VmFlags")
    return sum(int(re.findall(r"^Rss:\s+(\d+) kB", part, re.MULTILINE)[0]) << 10 for part in maps if str(path) in part)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "large").write_bytes(bytes(range(251)) * (SIZE // 251 + 1))
    (tmp_path / "small").write_bytes(b"abc")
    (tmp_path / "empty").write_bytes(b"")
    seal(tmp_path, {})
    return tmp_path


def test_a_checked_file_comes_into_memory_when_it_is_read(folder):
    data = SealedFolder(folder).data("large")
    assert resident(folder / "large") == 0
    assert bytes(data) == (folder / "large").read_bytes()
    assert resident(folder / "large") >= SIZE


@pytest.mark.parametrize("name", ["large", "small"])
@pytest.mark.parametrize("place", [0, -1])
def test_a_changed_byte_is_found_wherever_it_is(folder, name, place):
    held = bytearray((folder / name).read_bytes())
    held[place] ^= 1
    (folder / name).write_bytes(held)
    with pytest.raises(Damaged):
        SealedFolder(folder).data(name)


def test_small_and_empty_files_are_read(folder):
    sealed = SealedFolder(folder)
    assert (bytes(sealed.data("small")), bytes(sealed.data("empty"))) == (b"abc", b"")
    assert sealed_folder._MAPPED_BYTES < SIZE

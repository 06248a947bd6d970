# SPDX-License-Identifier: Apache-2.0
"""Files that unpack to far more than they hold end in a clear error, soon."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from stepscope.capture import open_capture
from stepscope.cli import main
from stepscope.errors import CaptureError
from stepscope.formats.chrome.inflate import blocks


def bomb(path: Path, head: bytes, megabytes: int) -> None:
    """`head`, then so many megabytes of spaces, packed a thousand times; each a gzip stream of its own, which costs no time."""
    path.write_bytes(gzip.compress(head) + gzip.compress(b" " * (1 << 20)) * megabytes)


def test_a_bomb_is_refused(tmp_path: Path):
    path = tmp_path / "w.pt.trace.json.gz"
    bomb(path, b'{"schemaVersion": 1, "traceEvents": [', 80)
    assert path.stat().st_size < 400_000
    with pytest.raises(CaptureError, match="unpacks to far more"):
        open_capture(path).load(keep=False)


def test_no_more_is_unpacked_than_needed_to_see_it(tmp_path: Path):
    path = tmp_path / "x.gz"
    bomb(path, b"", 80)
    sizes: list[int] = []
    with pytest.raises(CaptureError):
        sizes.extend(len(block) for block in blocks(path, 1 << 20, lambda issue, count, detail: None))
    assert sum(sizes) <= 66 << 20


def test_a_trace_that_packs_well_is_read(tmp_path: Path):
    events = [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": at, "dur": 1, "args": {}} for at in range(2000)]
    path = tmp_path / "w.pt.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()))
    assert open_capture(path).load(keep=False).ops.height == 2000


@pytest.mark.parametrize("head", ['{"schemaVersion": 1, "traceEvents": [', "["], ids=["kineto", "array"])
def test_max_memory_bounds_what_is_unpacked(tmp_path: Path, capsys, head):
    """Below the ratio that is refused always: an honest trace, which is too large for the memory that was allowed."""
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::%d", "pid": 1, "tid": 1, "ts": %d, "dur": 1, "args": {}}'
    text = head + ",\n".join(event % (at % 97, at) for at in range(40_000)) + ("]}" if head[0] == "{" else "]")
    path = tmp_path / "w.pt.trace.json.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert main(["analyse", str(path), "--export", "perfetto", "--max-memory", "1m", "--out", str(tmp_path / "out")]) == 3
    assert "unpacks to more than --max-memory allows" in capsys.readouterr().err
    assert main(["analyse", str(path), "--export", "perfetto", "--max-memory", "1g", "--out", str(tmp_path / "out")]) == 0

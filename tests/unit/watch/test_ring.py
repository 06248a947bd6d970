"""The ring of a process: what is written is there after a SIGKILL, and never more than its size."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from stepscope.errors import CaptureError
from stepscope.formats.ring import layout
from stepscope.formats.ring.read import read_ring
from stepscope.watch import ring, rings

ME = {"job": "train", "rank": 3, "host": "h", "role": "train", "pid": 1, "born": 2, "namespace": "", "began_ns": 5}
MS = 1_000_000


def add(kept, step, *, ms=10, phases=(0, 0, 0, 0), flags=0):
    count = kept.cells[ring.COUNT]
    kept.add(step, step * 100 * MS, step * 100 * MS + ms * MS, phases, flags)
    with kept.totals():
        kept.add_to_totals(list(kept.rows(count, count + 1)))


def test_rows_and_totals_are_read_back(tmp_path):
    kept = ring.Ring(tmp_path / "rings", ME)
    add(kept, 7, ms=10, phases=(1, 2, 3, 4))
    add(kept, 8, ms=700, phases=(10, 0, 30, 0), flags=layout.OUTLIER)
    found = read_ring(kept.path)
    assert found.rows["step"].tolist() == [7, 8]
    assert found.identity["rank"] == 3
    last = rings.state(kept.path, rings.head(kept.path)).last
    assert {name: last[name] for name in last if name.startswith("total_") and last[name]} == {
        "total_step": 710 * MS, "total_data_wait": 11, "total_other_loader": 2, "total_gc": 33, "total_checkpoint": 4,
    }  # fmt: skip
    buckets = [last[f"bucket_{number}"] for number in range(len(layout.BOUNDS_SECONDS) + 1)]
    assert buckets[layout.BOUNDS_SECONDS.index(0.01)] == buckets[layout.BOUNDS_SECONDS.index(1.0)] == 1
    assert sum(buckets) == 2
    assert oct(kept.path.stat().st_mode & 0o777) == "0o640"


@pytest.mark.parametrize("count", [0, 1, 5, layout.ROWS - 1, layout.ROWS, layout.ROWS + 1, 3 * layout.ROWS + 100])
def test_the_newest_rows_are_kept(tmp_path, count):
    kept = ring.Ring(tmp_path, ME)
    for step in range(count):
        add(kept, step)
    found = read_ring(kept.path)
    assert found.rows["step"].tolist() == list(range(max(0, count + 1 - layout.ROWS), count))
    assert rings.state(kept.path, rings.head(kept.path)).last.get("step") == (count - 1 if count else None)
    assert kept.path.stat().st_size == layout.FILE_BYTES


def test_a_row_that_is_being_written_is_left_out(tmp_path):
    kept = ring.Ring(tmp_path, ME)
    for step in range(layout.ROWS + 10):
        add(kept, step)
    kept.cells[ring.FIRST_ROW + 10 * ring.ROW] = 99  # the next row, in the place of the oldest one
    assert read_ring(kept.path).rows["step"].tolist() == list(range(11, layout.ROWS + 10))


def test_totals_that_are_being_written_are_not_shown(tmp_path):
    kept = ring.Ring(tmp_path, ME)
    add(kept, 0)
    with kept.totals():
        assert rings.state(kept.path, rings.head(kept.path)).last == {}
    assert rings.state(kept.path, rings.head(kept.path)).last["steps"] == 1


def test_rows_written_while_the_file_is_read_are_left_out(tmp_path, monkeypatch):
    kept = ring.Ring(tmp_path, ME)
    for step in range(layout.ROWS):
        add(kept, step)
    from stepscope.formats.ring import read

    before = read._count_now

    def meanwhile(path, count):
        for step in range(layout.ROWS, layout.ROWS + 100):
            add(kept, step)
        return before(path, count)

    monkeypatch.setattr(read, "_count_now", meanwhile)
    assert read_ring(kept.path).rows["step"].tolist() == list(range(101, layout.ROWS))


def test_rows_survive_a_sigkill(tmp_path):
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from stepscope.watch.ring import Ring\n"
        f"kept = Ring(Path({str(tmp_path)!r}), {ME!r})\n"
        "for step in range(10**9):\n"
        "    kept.add(step, step, step + 1, (0, 0, 0, 0), 0)\n"
        "    if step % 1000 == 0:\n"
        "        print(step, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 20_000:
                break
        process.send_signal(signal.SIGKILL)
        said = [int(line), *map(int, process.stdout.read().split())]
    (path,) = tmp_path.glob("*.ring")
    steps = read_ring(path).rows["step"].tolist()
    assert steps[-1] >= said[-1]
    assert steps == list(range(steps[-1] - len(steps) + 1, steps[-1] + 1))
    assert len(steps) >= layout.ROWS - 1


def test_a_full_disk_is_noticed_before_anything_is_mapped(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CaptureError, match="cannot create the ring"):
        ring.Ring(tmp_path, ME)
    assert list(tmp_path.iterdir()) == []


def test_a_deleted_file_does_not_matter(tmp_path):
    kept = ring.Ring(tmp_path, ME)
    kept.path.unlink()
    add(kept, 0)
    assert kept.cells[ring.COUNT] == 1


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name in ("link", "open"):
        with pytest.raises(CaptureError, match="cannot be trusted"):
            ring.Ring(tmp_path / name, ME)


def test_old_rings_are_deleted_but_those_of_running_processes(tmp_path):
    for number in range(ring.KEPT + 5):
        path = tmp_path / f"{number:03d}.ring"
        path.touch()
        os.utime(path, (number, number))
    ring.forget_old(tmp_path, lambda path: path.name == "002.ring")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["002.ring", *(f"{number:03d}.ring" for number in range(5, ring.KEPT + 5))]

"""Whatever happens to a recording, training goes on and what reached the disk can be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from observed import the_observer  # noqa: E402

from stepscope.collect.tiers.observer import Observer, ObserverOptions  # noqa: E402
from stepscope.formats.framework import read  # noqa: E402
from stepscope.formats.framework.clock import FrameworkClock  # noqa: E402
from stepscope.formats.framework.layouts import KINDS  # noqa: E402
from stepscope.formats.framework.records import decode, read_records  # noqa: E402

EVERYTHING = ObserverOptions(record_shapes=True, profile_memory=True, with_stack=True, with_modules=True, with_flops=True)
PREAMBLE = """
    import os, sys, threading, torch
    from pathlib import Path
    from stepscope.collect.tiers.observer import ObserverOptions, load_observer
    folder = Path(sys.argv[1])
    observer = load_observer()
    def record(**options):
        observer.prepare(folder, ObserverOptions(**options))
        observer.start()
"""


@pytest.fixture
def observer() -> Observer:
    return the_observer()


def script(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    text = textwrap.dedent(PREAMBLE) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", text, str(folder)], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.usefixtures("observer")
class TestProcesses:
    """Each in a process of its own, since it may not survive."""

    pytestmark = pytest.mark.slow  # torch is imported anew

    def test_killed_in_the_middle(self, tmp_path):
        done = script(
            """
            record(record_shapes=True, profile_memory=True, with_stack=True)
            before = torch.ones(3)
            files = [folder / f"torch.{name}" for name in ("op_range", "memory_usage", "python_tracer_func")]
            while not all(file.is_file() for file in files):
                torch.add(before, 1)
            os.kill(os.getpid(), 9)
            """,
            tmp_path,
        )
        assert done.returncode == -signal.SIGKILL
        frames, quality = read_records(tmp_path)
        assert "aten::ones" in frames["op_range"]["name"]
        assert frames["memory_usage"].height
        assert set(quality["issue"]) <= {"truncated-record"}
        tables = read(tmp_path, FrameworkClock())
        assert tables.python_calls.filter(pl.col("name").cast(pl.String).str.contains("add")).height

    def test_calls_that_reached_the_disk_have_names_whenever_it_is_killed(self, tmp_path):
        done = script(
            """
            def new_functions(number):
                for group in range(10**6):
                    names = {}
                    exec("".join(f"def f{number}_{group}_{i}(): pass\\n" for i in range(200)), names)
                    functions = [function for name, function in names.items() if name[0] == "f"]
                    for _ in range(40):
                        for function in functions:
                            function()
            for number in range(6):
                child = os.fork()
                if not child:
                    (folder / str(number)).mkdir()
                    observer.prepare(folder / str(number), ObserverOptions(with_stack=True))
                    observer.start()
                    new_functions(number)
                calls = folder / str(number) / "torch.python_tracer_func"
                size = 0
                while not size:
                    size = calls.stat().st_size if calls.is_file() else 0
                while calls.stat().st_size == size:  # until more of them is written
                    pass
                os.kill(child, 9)
                os.waitpid(child, 0)
            """,
            tmp_path,
        )
        assert done.returncode == 0, done.stderr
        for folder in tmp_path.iterdir():
            frames, _ = read_records(folder)
            assert frames["python_tracer_func"].height
            assert set(frames["python_tracer_func"]["key"]) <= set(frames["python_tracer_hash"]["key"]), folder.name

    def test_forked_child_goes_on_without_recording(self, tmp_path):
        done = script(
            """
            record(profile_memory=True, with_stack=True)
            torch.ones(2)
            child = os.fork()
            if not child:
                for _ in range(5000):
                    torch.zeros(2)
                ok = sys.getprofile() is None and observer.phase == "idle"
                other = folder / "child"
                other.mkdir()
                observer.prepare(other, ObserverOptions())
                observer.start()
                torch.full((2,), 7.0)
                report = observer.stop()
                os._exit(0 if ok and report.operators else 3)
            status = os.waitpid(child, 0)[1]
            torch.eye(2)
            observer.stop()
            sys.exit(os.waitstatus_to_exitcode(status))
            """,
            tmp_path,
        )
        assert done.returncode == 0, done.stderr
        frames, quality = read_records(tmp_path)
        names = set(frames["op_range"]["name"])
        assert {"aten::ones", "aten::eye"} <= names
        assert "aten::zeros" not in names
        assert quality.height == 0
        assert frames["op_range"]["process_id"].n_unique() == 1
        child, quality = read_records(tmp_path / "child")
        assert "aten::full" in child["op_range"]["name"]
        assert quality.height == 0

    def test_data_loader_workers(self, tmp_path):
        done = script(
            """
            class Numbers(torch.utils.data.Dataset):
                def __len__(self): return 8
                def __getitem__(self, i): return torch.full((2,), float(i))
            record(record_shapes=True, profile_memory=True, with_stack=True, all_threads=True)
            total = sum(batch.sum() for batch in torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2))
            observer.stop()
            sys.exit(0 if total == 56 else 3)
            """,
            tmp_path,
        )
        assert done.returncode == 0, done.stderr
        _, quality = read_records(tmp_path)
        assert quality.height == 0

    def test_exit_without_stop(self, tmp_path):
        done = script("record(with_stack=True, profile_memory=True); torch.ones(2)", tmp_path)
        assert done.returncode == 0, done.stderr
        assert "aten::ones" in read_records(tmp_path)[0]["op_range"]["name"]

    def test_threads_start_and_end_while_captures_come_and_go(self, tmp_path):
        """Open operators outlive captures, threads outlive and undercut them; every file is sound."""
        done = script(
            """
            running = True
            def work():
                while running:
                    with torch.profiler.record_function("range"):
                        torch.add(torch.ones(3), 1)
            def churn():
                while running:
                    thread = threading.Thread(target=lambda: [torch.ones(2) for _ in range(20)])
                    thread.start(); thread.join()
            threads = [threading.Thread(target=target) for target in (work, work, churn)]
            for thread in threads: thread.start()
            for cycle in range(60):
                target = folder / str(cycle)
                target.mkdir()
                observer.prepare(target, ObserverOptions(record_shapes=True, profile_memory=cycle % 2 == 0,
                                                         with_stack=cycle % 3 == 0, all_threads=True))
                observer.start()
                observer.push_range("open")
                for _ in range(300): torch.ones(1)
                if cycle % 4 == 0: observer.silence()
                observer.stop()
            running = False
            for thread in threads: thread.join()
            """,
            tmp_path,
        )
        assert done.returncode == 0, done.stderr
        for cycle in tmp_path.iterdir():
            frames, quality = read_records(cycle)
            assert quality.height == 0
            ops = frames["op_range"]
            assert ops.filter(pl.col("name") == "aten::ones").height >= 300
            assert (ops["end"] >= ops["start"]).all()
            assert read(cycle, FrameworkClock()).quality.height == 0


def recorded(observer, folder, options=EVERYTHING):
    layer = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(layer.parameters(), momentum=0.5)
    observer.prepare(folder, options)
    observer.start()
    layer(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    observer.mark(0, 0, "MatMul")
    return observer.stop()


def test_cut_at_any_byte_gives_everything_before_the_cut(tmp_path, observer):
    recorded(observer, tmp_path)
    for name in ("op_range", "op_mark", "memory_usage", "python_tracer_func", "python_tracer_hash", "param_tensor_info"):
        kind = KINDS[name]
        data = memoryview((tmp_path / kind.file_name).read_bytes())
        array = pl.Series(list(data), dtype=pl.UInt8).to_numpy()
        whole, losses = decode(kind, array, name)
        assert whole.height
        assert sum(loss.height for loss in losses) == 0
        for cut in range(0, array.size, max(array.size // 150, 1)):
            part, _ = decode(kind, array[:cut].copy(), name)
            assert part.equals(whole.head(part.height))
            assert part.height == records_within(kind, data, cut)


def records_within(kind, data, cut):
    """Counted by hand: how many records end at or before the cut."""
    if kind.outer_type is None:
        return cut // kind.layouts[0].fixed.itemsize
    count = position = 0
    while position + 6 <= cut:
        position += 6 + int.from_bytes(data[position + 2 : position + 6], "little")
        count += position <= cut
    return count


def test_limit_of_bytes_ends_the_recording_only(tmp_path, observer):
    observer.prepare(tmp_path, ObserverOptions(with_stack=True, max_bytes=100_000))
    observer.start()
    tensor = torch.ones(2)
    while observer.phase == "recording":
        tensor.add(1)
    assert observer.phase == "limit reached"
    tensor.add(1)
    report = observer.stop()
    assert report.limit == "max_bytes=100000 reached"
    assert report.bytes >= 100_000
    assert read_records(tmp_path)[1].height == 0
    assert read(tmp_path, FrameworkClock()).quality.height == 0
    assert sys.getprofile() is None


def test_folder_that_is_gone(tmp_path, observer):
    report = recorded(observer, tmp_path / "nowhere", ObserverOptions(record_shapes=True))
    assert report.limit == "files could not be written: No such file or directory"
    assert torch.ones(2).sum() == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_full_disk(tmp_path, observer):
    (tmp_path / "torch.op_range").symlink_to("/dev/full")
    report = recorded(observer, tmp_path, ObserverOptions())
    assert report.limit  # links are not followed, which is an error too


@pytest.mark.slow  # torch is imported anew
def test_file_size_limit_leaves_whole_records(tmp_path, observer):
    """A file that may not grow stands for a full disk: the write that does not fit is taken back."""
    done = script(
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_001, 300_001))
        record()
        tensor = torch.ones(2)
        while observer.phase == "recording":
            tensor.add(1)
        print(observer.stop().limit)
        """,
        tmp_path,
    )
    assert done.stdout.strip() == "files could not be written: File too large", done.stderr
    frames, quality = read_records(tmp_path)
    assert quality.height == 0
    assert frames["op_range"].height


def test_exception_inside_a_recording(tmp_path, observer):
    observer.prepare(tmp_path, EVERYTHING)
    observer.start()
    with pytest.raises(RuntimeError, match="size"):
        torch.nn.Linear(3, 3)(torch.ones(2, 4) + torch.ones(2, 5))
    observer.stop()
    assert read(tmp_path, FrameworkClock()).quality.height == 0


def test_names_that_are_not_text(tmp_path, observer):
    observer.prepare(tmp_path, ObserverOptions())
    observer.start()
    observer._short.stepscope_observer_push(b"a\xff\xc3\xa9\xe2\x82", 6)
    observer.pop_range()
    observer.push_range("")
    observer.pop_range()
    observer.stop()
    frames, quality = read_records(tmp_path)
    assert quality.height == 0
    assert frames["op_range"]["name"].to_list() == ["a?\u00e9??", ""]


def test_memory_stays_bounded(tmp_path, observer):
    """Records go to the disk, not into memory."""
    tensor = torch.ones(2)
    observer.prepare(tmp_path, ObserverOptions(record_shapes=True, profile_memory=True))
    observer.start()
    before = own_bytes()
    for _ in range(200_000):
        torch.add(tensor, tensor)
    grown = own_bytes() - before
    report = observer.stop()
    assert report.operators == 200_000
    assert grown <= 64 * 2**20


def own_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGESIZE")

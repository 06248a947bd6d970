"""Whatever happens to the profiler, training goes on; whatever reached the disk can be analysed."""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path

import pytest
from warm_torch import WarmTorch

import stepscope
from stepscope.analyser import analyse
from stepscope.collect.tiers.observer import load_observer

torch = pytest.importorskip("torch", reason="collecting needs torch")
pytestmark = pytest.mark.slow  # each case is a training process of its own

NATIVE = load_observer()
needs_native = pytest.mark.skipif(isinstance(NATIVE, str), reason=str(NATIVE))

PREAMBLE = """
import os, signal, sys, threading, time
import torch
from stepscope import profiler as P

def step():
    torch.ones(4, requires_grad=True).sin().sum().backward()
"""


@pytest.fixture(scope="module")
def warm():
    with WarmTorch() as started:
        yield started


@pytest.fixture
def run(warm, tmp_path):
    """Runs a training script and gives its output; `expect` is its exit code."""

    def run(body, *, tier="kineto", expect=0, **environment):
        script = tmp_path / "train.py"
        script.write_text(PREAMBLE + textwrap.dedent(body))
        settings = {**os.environ, "STEPSCOPE_COLLECTOR": tier, "STEPSCOPE_MIN_FREE_BYTES": "0", **environment}
        done = warm.run(script, env=settings, timeout=120)
        assert done.returncode == expect, done.stdout + done.stderr
        assert "profiler.py:" not in done.stdout, "standard output belongs to the script"
        return done.stdout + done.stderr

    return run


def the_capture(tmp_path):
    (found,) = tmp_path.rglob("*_ascend_pt")
    return found


TIERS = ["kineto", pytest.param("native", marks=needs_native)]


@pytest.mark.parametrize("tier", TIERS)
def test_exception_in_the_training_step(run, tier, tmp_path):
    run(
        """
        with P.profile(on_trace_ready=lambda prof: print("READY")):
            step()
            raise ValueError("mine")
        """,
        tier=tier,
        expect=1,
    )
    assert stepscope.open(the_capture(tmp_path)).ops.height


@pytest.mark.parametrize("tier", TIERS)
def test_an_unwritable_folder(run, tier, tmp_path):
    out = run(
        """
        with P.profile(on_trace_ready=P.tensorboard_trace_handler("/proc/nowhere")) as prof:
            for _ in range(3):
                step()
                prof.step()
        print("TRAINED")
        """,
        tier=tier,
    )
    assert out.count("WARNING") == 1
    assert "TRAINED" in out


@pytest.mark.parametrize("tier", TIERS)
def test_the_capture_folder_is_removed_while_recording(run, tier, tmp_path):
    out = run(
        """
        import shutil
        with P.profile(on_trace_ready=lambda prof: print("READY")) as prof:
            step()
            shutil.rmtree(prof.prof_if.prof_path)
            step()
        print("TRAINED")
        """,
        tier=tier,
    )
    assert "TRAINED" in out
    assert out.count("WARNING") == 1
    assert "READY" not in out


@pytest.mark.parametrize("tier", TIERS)
def test_the_disk_is_full(run, tier, tmp_path):
    """A file system of one megabyte, where this machine lets us make one; else a limit on file sizes."""
    out = run(
        """
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        prof = P.profile(on_trace_ready=lambda prof: None, record_shapes=True, with_stack=True)
        prof.start()
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        for _ in range(300):
            step()
        prof.stop()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        step()
        print("TRAINED")
        """,
        tier=tier,
    )
    assert "TRAINED" in out
    assert out.count("WARNING") == 1


@pytest.mark.parametrize("leave", ["os._exit(7)", "sys.exit(7)"])
@pytest.mark.parametrize("tier", TIERS)
def test_fork_while_recording(run, tier, leave, tmp_path):
    out = run(
        f"""
        with P.profile(on_trace_ready=lambda prof: print("READY", flush=True)) as prof:
            step()
            child = os.fork()
            if child == 0:
                torch.ones(3).tan()
                prof.step()
                prof.stop()
                del prof
                print("CHILD")
                # The first as multiprocessing does; the second hangs in torch's own profiler unless we help.
                sys.stdout.flush() if "_exit" in {leave!r} else None
                {leave}
            assert os.waitpid(child, 0)[1] >> 8 == 7
            torch.ones(3).cosh()
        """,
        tier=tier,
    )
    assert out.count("READY") == 1
    assert out.count("CHILD") == 1
    names = set(stepscope.open(the_capture(tmp_path)).ops["name"].cast(str))
    assert "aten::cosh" in names
    assert "aten::tan" not in names


@pytest.mark.parametrize("tier", TIERS)
def test_workers_of_a_data_loader(run, tier, tmp_path):
    out = run(
        """
        loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=2, num_workers=2)
        plan = P.schedule(wait=0, active=2, repeat=1)
        with P.profile(schedule=plan, on_trace_ready=lambda prof: print("READY", flush=True)) as prof:
            for batch in loader:
                batch.sin()
                prof.step()
        """,
        tier=tier,
    )
    assert out.count("READY") == 1
    capture = stepscope.open(the_capture(tmp_path))
    assert capture.steps.height == 2
    assert capture.quality.height == 0
    # Two workers with two batches each; all of them may be ready before the first step ends.
    stages = capture.data_stages
    assert stages.height
    assert set(stages["operator"].cast(str)) <= {"DataLoader worker 0", "DataLoader worker 1"}
    assert set(stages["info"].cast(str)) == {"samples:2"}
    fetches = capture.ops[stages["op"]]
    assert set(fetches["name"].cast(str)) <= {f"DataLoader worker {number}: fetch" for number in (0, 1)}
    trainer = capture.ops.filter(capture.ops["name"] == "aten::sin")["pid"][0]
    assert trainer not in set(fetches["pid"])


@pytest.mark.parametrize("tier", TIERS)
def test_the_process_ends_inside_a_recording(run, tier, tmp_path):
    out = run(
        """
        prof = P.profile(on_trace_ready=P.tensorboard_trace_handler("r"))
        prof.start()
        step()
        """,
        tier=tier,
    )
    assert "stepscope analyse" in out
    assert not list(tmp_path.rglob("ASCEND_PROFILER_OUTPUT"))
    assert stepscope.open(the_capture(tmp_path)).ops.height


@needs_native
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_process_leaves_what_was_written(run, number, tmp_path):
    run(
        f"""
        prof = P.profile(on_trace_ready=P.tensorboard_trace_handler("r"), record_shapes=True)
        prof.start()
        written = os.path.join(prof.prof_if.prof_path, "FRAMEWORK", "torch.op_range")
        while not (os.path.exists(written) and os.path.getsize(written) > 100_000):
            step()
        os.kill(os.getpid(), {int(number)})
        """,
        tier="native",
        expect=-number,
    )
    capture = stepscope.open(the_capture(tmp_path))
    assert capture.ops.height > 500
    assert capture.facts.profiler_info["collector"]["complete"] is False
    (result,) = analyse(str(the_capture(tmp_path)))
    assert result.ok


def test_a_killed_process_with_torchs_own_profiler_is_explained(run, tmp_path):
    run(
        """
        prof = P.profile(on_trace_ready=P.tensorboard_trace_handler("r"))
        prof.start()
        step()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        expect=-signal.SIGKILL,
    )
    assert stepscope.open(the_capture(tmp_path)).ops.height == 0
    (result,) = analyse(str(the_capture(tmp_path)))
    assert result.ok


def test_a_terminated_process_with_torchs_own_profiler_saves_first(run, tmp_path):
    out = run(
        """
        prof = P.profile(on_trace_ready=P.tensorboard_trace_handler("r"))
        prof.start()
        step()
        child = os.fork()
        while child == 0:
            time.sleep(0.01)  # not pause(): a signal that comes just before it would be slept through
        os.kill(child, signal.SIGTERM)  # at once: before the child has run any Python
        assert os.waitpid(child, 0)[1] == signal.SIGTERM
        step()
        os.kill(os.getpid(), signal.SIGTERM)
        step()
        """,
        expect=-signal.SIGTERM,
    )
    assert "stepscope analyse" in out
    capture = stepscope.open(the_capture(tmp_path))
    assert capture.ops["name"].cast(str).to_list().count("aten::sin") == 2
    assert capture.facts.profiler_info["collector"]["complete"] is True


def test_a_handler_of_the_job_for_termination_stays(run, tmp_path):
    out = run(
        """
        signal.signal(signal.SIGTERM, lambda number, frame: print("MINE", flush=True))
        with P.profile(on_trace_ready=lambda prof: None):
            os.kill(os.getpid(), signal.SIGTERM)
            step()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with P.profile(on_trace_ready=lambda prof: None):
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        """,
    )
    assert out.count("MINE") == 1


def test_torchs_profiler_runs_already(run, tmp_path):
    out = run(
        """
        import torch.profiler
        with torch.profiler.profile() as theirs:
            with P.profile(on_trace_ready=lambda prof: print("READY")) as prof:
                step()
                prof.step()
        assert len(theirs.events())
        print("TRAINED")
        """,
    )
    assert "TRAINED" in out
    assert out.count("WARNING") == 1
    assert "READY" not in out


@pytest.mark.parametrize("tier", TIERS)
def test_start_and_stop_many_times(run, tier, tmp_path):
    run(
        """
        for _ in range(5):
            with P.profile(on_trace_ready=lambda prof: None, profile_memory=True, with_stack=True):
                step()
        """,
        tier=tier,
    )
    found = sorted(tmp_path.rglob("*_ascend_pt"))
    assert len(found) == 5
    counts = [stepscope.open(path).ops.height for path in found]
    assert len(set(counts[1:])) == 1, "a later capture holds more than its own operators"


@pytest.mark.parametrize("tier", TIERS)
def test_fifty_captures_leave_no_thread_and_no_open_file(run, tier, tmp_path):
    run(
        """
        def captures(count):
            config = P._ExperimentalConfig(host_sys=["cpu", "mem"], gc_detect_threshold=10)
            for _ in range(count):
                with P.profile(on_trace_ready=lambda prof: None, record_shapes=True, profile_memory=True, with_stack=True,
                               max_seconds=100, experimental_config=config):
                    step()
            return len(os.listdir("/proc/self/fd")), threading.active_count()

        def tasks(most):
            # A thread that was joined leaves the list of the kernel a moment later.
            until = time.monotonic() + 20
            while len(os.listdir("/proc/self/task")) > most and time.monotonic() < until:
                os.sched_yield()
            return len(os.listdir("/proc/self/task"))

        before, threads = captures(3), tasks(3)
        assert captures(50) == before
        assert tasks(threads) <= threads
        """,
        tier=tier,
    )


def test_a_closed_standard_error(run, tmp_path):
    run(
        """
        sys.stderr.close()
        prof = P.profile(record_shapes=1)
        prof.stop()
        with prof:
            step()
        """,
    )
    assert Path(the_capture(tmp_path), "profiler_info.json").is_file()


def test_without_a_compiler_torchs_own_profiler_records_and_it_is_said_once(run, tmp_path):
    out = run(
        """
        for _ in range(2):
            with P.profile(on_trace_ready=lambda prof: None, record_shapes=True, profile_memory=True, with_stack=True):
                step()
        """,
        tier="",
        CXX="no-such-compiler",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    assert out.count("no C++ compiler found") == 1
    assert out.count("INFO") == 1
    assert "WARNING" not in out
    for folder in tmp_path.rglob("*_ascend_pt"):
        capture = stepscope.open(folder)
        assert "aten::sin" in set(capture.ops["name"].cast(str))
        assert capture.memory_events.height
        assert capture.python_calls.height

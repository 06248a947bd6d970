"""Machines and scripts with odd limits: training ends with the same loss and exit code as without a profiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from thorough import THOROUGH

import stepscope
from stepscope.analysis import quality
from stepscope.collect.tiers.observer import load_observer

torch = pytest.importorskip("torch", reason="collecting needs torch")
pytestmark = pytest.mark.slow  # each case is a training process of its own

NATIVE = load_observer()
TIERS = ["kineto", pytest.param("native", marks=pytest.mark.skipif(isinstance(NATIVE, str), reason=str(NATIVE)))]
USUAL = TIERS if THOROUGH or isinstance(NATIVE, str) else TIERS[1:]  # how most jobs record

TRAINING = """
import os, resource, signal, sys, threading, time
import torch
from stepscope import profiler as P

torch.set_num_threads(1)

def train(prof=None, during=lambda: None):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        loss = model(torch.ones(3, 4)).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        during()
        prof and prof.step()
    return loss.item()

def recorded(during=lambda: None):
    with P.profile(on_trace_ready=lambda prof: None, record_shapes=True) as prof:
        return train(prof, during)
"""
CASES = {
    "umask-777": "os.umask(0o777)",
    "few-descriptors": """
        held = os.dup(0)  # the highest so far
        resource.setrlimit(resource.RLIMIT_NOFILE, (held + 1, held + 1))
        """,
    "small-files": """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
        """,
    "little-memory": """
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), used + (256 << 20)))
        """,
    "clock-jumps": """
        real = time.time, time.time_ns
        jumps = [0]
        time.time, time.time_ns = (lambda: real[0]() + jumps[0]), (lambda: real[1]() + jumps[0] * 10**9)
        def during():
            jumps[0] = -86400 if jumps[0] > 0 else 86400
        """,
}
OFF = {"few-descriptors", "small-files"}  # nothing can be written: said, and training goes on
READABLE = {"clock-jumps", "little-memory"}  # files with no permissions at all are for root alone


def run(folder: Path, body: str, tier: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(TRAINING + textwrap.dedent(body))
    settings = {**os.environ, "STEPSCOPE_COLLECTOR": tier, "STEPSCOPE_MIN_FREE_BYTES": "0", **environment}
    return subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        env={name: value for name, value in settings.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 7, done.stdout + done.stderr
    assert done.stdout == "SAME\n"
    assert "Traceback" not in done.stderr


ENDING = """
print("SAME" if recorded(during) == expected else "OTHER", flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tier", USUAL)
def test_limits(tmp_path, tier, case):
    body = "expected, during = train(), lambda: None\n" + textwrap.dedent(CASES[case]) + ENDING
    done = run(tmp_path, body, tier)
    check(done)
    assert ("the profiler is now off and training continues" in done.stderr) == (case in OFF) or case == "umask-777"
    if case in READABLE:
        (capture,) = tmp_path.glob("*_ascend_pt")
        assert stepscope.open(capture).ops.height > 10


@pytest.mark.parametrize("tier", USUAL)
def test_without_a_home(tmp_path, tier):
    check(run(tmp_path, "expected, during = train(), lambda: None" + ENDING, tier, HOME=None, XDG_CACHE_HOME=None))
    (capture,) = tmp_path.glob("*_ascend_pt")
    assert stepscope.open(capture).ops.height > 10


@pytest.mark.parametrize("tier", USUAL)
def test_two_thousand_threads_at_once(tmp_path, tier):
    body = """
        expected = train()
        done = []
        def during():
            if done:
                return
            together = threading.Barrier(2000)
            def work():
                together.wait(60)
                torch.ones(2).cosh()
                done.append(1)
            threading.stack_size(1 << 18)
            threads = [threading.Thread(target=work) for _ in range(2000)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(done) == 2000
        """
    check(run(tmp_path, textwrap.dedent(body) + ENDING, tier))
    (capture,) = tmp_path.glob("*_ascend_pt")
    assert stepscope.open(capture).ops.height > 10


SHORT_WRITES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
extern "C" ssize_t write(int file, const void* data, size_t size) {
  static auto real = reinterpret_cast<ssize_t (*)(int, const void*, size_t)>(dlsym(RTLD_NEXT, "write"));
  static unsigned calls = 0;
  struct stat status;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
    if (++calls % 3 == 0) { errno = EINTR; return -1; }
    if (size > 100) size = size / 2;
  }
  return real(file, data, size);
}
"""


@pytest.mark.parametrize("tier", USUAL)
def test_a_preloaded_library_that_writes_half_of_it(tmp_path, tier):
    """What every `write` may do: be interrupted, or take a part. The capture is whole all the same."""
    compiler = next(filter(None, map(shutil.which, ["g++", "c++", "clang++"])), None)
    if compiler is None:
        pytest.skip("no C++ compiler makes the library")
    (tmp_path / "short.cpp").write_text(SHORT_WRITES)
    library = tmp_path / "short.so"
    subprocess.run([compiler, "-shared", "-fPIC", str(tmp_path / "short.cpp"), "-o", str(library), "-ldl"], check=True)
    check(run(tmp_path, "expected, during = train(), lambda: None" + ENDING, tier, LD_PRELOAD=str(library)))
    (capture,) = tmp_path.glob("*_ascend_pt")
    tables = stepscope.open(capture).tables
    assert tables.ops.height > 10
    assert quality.complete(tables.quality)


def test_data_loaders_whose_workers_are_spawned(tmp_path):
    """A spawned worker imports the script and torch anew, with all variables of the job."""
    body = """
        def fetched():
            data = torch.utils.data.TensorDataset(torch.arange(6.0))
            loader = torch.utils.data.DataLoader(data, num_workers=2, multiprocessing_context="spawn")
            return sum(float(batch) for batch, in loader)

        if __name__ == "__main__":
            expected, got = train(), []
            result = recorded(lambda: got.append(fetched()) if not got else None)
            print("SAME" if result == expected and got == [15.0] else "OTHER", flush=True)
            sys.exit(7)
        """
    check(run(tmp_path, body, "kineto", STEPSCOPE_WATCH="record=0,rings=rings"))
    (capture,) = tmp_path.glob("*_ascend_pt")
    assert stepscope.open(capture).ops.height > 10
    assert len(list((tmp_path / "rings").iterdir())) == 1


MISSING = """
expected = train()
for path in sys.argv[1:]:
    owner, name = path.rsplit(".", 1)
    import importlib
    for part in (sys.modules.get(owner), importlib.import_module(owner)):
        if part is not None and name in vars(part):
            delattr(part, name)
"""
OLD = (
    "torch.compiler.is_compiling", "torch.optim.optimizer.register_optimizer_step_post_hook", "torch.serialization._save",
    "torch.utils.data.dataloader._BaseDataLoaderIter", "torch.distributed.get_process_group_ranks", "torch.accelerator",
)  # fmt: skip


@pytest.mark.parametrize("tier", USUAL)
def test_names_that_an_older_torch_does_not_have(tmp_path, tier):
    """Those that a recording with marks and the watch use; what cannot be recorded is a warning at most."""
    body = (
        MISSING.replace("sys.argv[1:]", repr(OLD))
        + """
import stepscope
stepscope.watch(record=0, rings="rings")
settings = P._ExperimentalConfig(mstx=True)
with P.profile(on_trace_ready=lambda prof: None, experimental_config=settings) as prof:
    result = train(prof)
print("SAME" if result == expected else "OTHER", flush=True)
sys.exit(7)
"""
    )
    check(run(tmp_path, body, tier))
    (capture,) = tmp_path.glob("*_ascend_pt")
    assert stepscope.open(capture).ops.height > 10

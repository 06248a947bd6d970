"""A process that forks while threads of ours are at work: the child goes on and ends, the parent loses nothing."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from npu_process import reason_without_device
from npu_ranks import run_ranks

import stepscope
from stepscope.collect.current_capture import CurrentCapture

torch = pytest.importorskip("torch", reason="the simulated device needs torch")
pytestmark = pytest.mark.slow  # each case is a process of its own

CHILD_SECONDS = 60  # nobody needs so long unless something hangs

# `child(work)` forks, runs `work` there, and returns how the child ended; one that hangs is killed and told.
PREAMBLE = f"""
import os, sys, threading, time

def ended(number, what="a child"):
    until = time.monotonic() + {CHILD_SECONDS}
    while time.monotonic() < until:
        found, status = os.waitpid(number, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(number, 9)
    os.waitpid(number, 0)
    return what + " hung"

def child(work, fork=os.fork):
    number = fork()
    if number == 0:
        work()
        os._exit(0)
    return ended(number)
"""
DEVICE = """
import torch
from stepscope import simnpu
simnpu.load()
torch.set_num_threads(1)

def compute():
    x = torch.empty(8, 8).fill_(1)
    x.uniform_()
    torch.randn(8, 8).copy_(x)
    torch.arange(10)
"""

# Whoever begins to initialise a static variable on another thread than the first takes 20 ms for it.
SLOW_STATICS = """
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>
extern "C" int __cxa_guard_acquire(void* guard) {
  static auto real = reinterpret_cast<int (*)(void*)>(dlsym(RTLD_NEXT, "__cxa_guard_acquire"));
  const int ours = real(guard);
  if (ours && syscall(SYS_gettid) != getpid())
    usleep(20000);
  return ours;
}
"""


@functools.cache
def compiler() -> str | None:
    return next(filter(None, map(shutil.which, [os.environ.get("CXX", ""), "g++", "c++", "clang++"])), None)


@pytest.fixture(scope="module")
def slow_statics(tmp_path_factory) -> str:
    if compiler() is None:
        reason = "no C++ compiler makes the library that slows static variables down"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    folder = tmp_path_factory.mktemp("slow")
    source, made = folder / "slow.cpp", folder / "slow.so"
    source.write_text(SLOW_STATICS)
    # The compiler's own library must be found behind this one, though Python does not use it.
    subprocess.run(
        [compiler(), "-fno-threadsafe-statics", "-shared", "-fPIC", source, "-o", made, "-Wl,--no-as-needed", "-lstdc++", "-ldl"],
        check=True,
        timeout=120,
    )
    return str(made)


@pytest.fixture
def device():
    reason = reason_without_device()
    if reason:
        pytest.skip(f"no simulated NPU: {reason}")


def run(folder: Path, body: str, **environment: str) -> list[str]:
    script = folder / "script.py"
    script.write_text(PREAMBLE + textwrap.dedent(body))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, "STEPSCOPE_MIN_FREE_BYTES": "0", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split("\n")[:-1]


# Each time from a process that has not run a kernel yet: a static variable is initialised once.
FIRST_KERNELS = """
import ctypes

FORKS = [os.fork, ctypes.PyDLL(None).fork]  # the second without Python's hooks, as libraries do

def first_kernels(number):
    a, b = torch.empty(64, 64, device="npu"), torch.empty(64, 64, device="npu")
    event = torch.npu.Event()
    event.record()
    event.synchronize()  # the worker runs
    a.fill_(2)
    torch.randn(8, 8, device="npu")
    b.copy_(a)
    time.sleep(number * 0.01)
    how = child(compute, FORKS[number % 2])
    if how == 0 and not bool((b.cpu() == 2).all()):
        how = "the parent computed wrong"
    if how:
        print(how, flush=True)
    os._exit(how != 0)

print([child(lambda: first_kernels(number)) for number in range(8)])
"""


def test_fork_while_kernels_run_for_the_first_time(device, slow_statics, tmp_path):
    assert run(tmp_path, DEVICE + FIRST_KERNELS, LD_PRELOAD=slow_statics) == [str([0] * 8)]


ENDS = """
import multiprocessing as mp
import subprocess

def busy():
    for device in ("npu:0", "npu:1"):
        x = torch.empty(256, 256, device=device)
        for _ in range(50):
            x.normal_()

def leave(how):
    compute()
    if how == "exit":
        sys.exit(3)
    if how == "_exit":
        os._exit(3)
    if how == "raise":
        sys.stderr = open(os.devnull, "w")
        raise ValueError("as asked for")
    if how == "again":
        return os._exit(child(compute))

for how in ("exit", "_exit", "raise", "again", "return"):
    busy()
    print(how, child(lambda: leave(how)), flush=True)

busy()
thread = threading.Thread(target=lambda: print("thread", child(compute), flush=True))
thread.start()
thread.join()

busy()
process = mp.get_context("fork").Process(target=compute)
process.start()
process.join(60)
print("multiprocessing", process.exitcode)

busy()
print("subprocess", subprocess.run(["true"], preexec_fn=compute).returncode)
torch.npu.synchronize()
"""


def test_ways_to_end_a_child(device, tmp_path):
    expected = ["exit 3", "_exit 3", "raise 1", "again 0", "return 0", "thread 0", "multiprocessing 0", "subprocess 0"]
    assert run(tmp_path, DEVICE + ENDS) == expected


LOADERS = """
from stepscope import profiler as P

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.arange(4.0) + index

activities = [P.ProfilerActivity.CPU, P.ProfilerActivity.NPU]
ready = lambda prof: print("READY", flush=True)
x = torch.ones(64, 64, device="npu")
with P.profile(activities=activities, profile_memory=True, with_stack=True, on_trace_ready=ready) as prof:
    for persistent in (False, True):
        loader = torch.utils.data.DataLoader(Numbers(), num_workers=2, persistent_workers=persistent, timeout=60, pin_memory=False)
        for epoch in range(2):
            for batch in loader:
                for _ in range(20):
                    x.uniform_()
                x[0, :4].copy_(batch[0])
    torch.npu.synchronize()
print("TRAINED", x[0, :4].tolist())
"""


def test_workers_of_data_loaders_inside_a_capture(device, tmp_path):
    out = run(tmp_path, DEVICE + LOADERS)
    assert [line for line in out if not line.startswith("[")] == ["READY", "TRAINED [7.0, 8.0, 9.0, 10.0]"]
    (found,) = tmp_path.rglob("*_ascend_pt")
    capture = stepscope.open(found)
    assert capture.kernels.height >= 4 * 8 * 21  # what the parent computed, whole


PYTHON_KERNELS = """
library = torch.library.Library("fork_test", "FRAGMENT")
library.define("slow(Tensor x) -> Tensor")
library.define("forks(Tensor x) -> Tensor")
inside, ends = threading.Event(), []

def slow(x):
    inside.set()
    for _ in range(20):
        time.sleep(0.01)  # gives the interpreter's lock up, and takes it again
    return x + 1

library.impl("slow", slow, "CPU")
library.impl("forks", lambda x: (ends.append(child(compute)), x + 1)[1], "CPU")
x = torch.zeros(2, device="npu")
y = torch.ops.fork_test.slow(x)  # the first time it is waited for
inside.clear()
y = torch.ops.fork_test.slow(x)
inside.wait()
began = time.monotonic()
number = os.fork()
if number == 0:
    compute()
    os._exit(0)
print("waited", 0 < time.monotonic() - began < 9, ended(number), y.tolist())

torch.ops.fork_test.forks(x)
torch.npu.synchronize()
print("worker", ends)
"""


def test_kernels_written_in_python(device, tmp_path):
    """They need the interpreter's lock, which the forking thread has; and one may fork itself."""
    assert run(tmp_path, DEVICE + PYTHON_KERNELS) == ["waited True 0 [1.0, 1.0]", "worker [0]"]


LONG = """
x = torch.empty(64, 64, device="npu")
event, other = torch.npu.Event(), torch.npu.Stream()
x.fill_(1)
event.record()
other.wait_event(event)
with torch.npu.stream(other):
    x.mul_(2)
time.sleep(0.1)
print(child(compute), event.query(), flush=True)
os._exit(0)  # without the rest
"""


def test_fork_waits_neither_for_events_nor_for_modelled_time(device, tmp_path):
    # A kernel that small is modelled with 1.5 us: here it takes half a minute.
    assert run(tmp_path, DEVICE + LONG, STEPSCOPE_SIM_KERNEL_TIME="2e7") == ["0 False"]


def wait_for_a_peer(rank, store, tell):
    import time

    import torch.distributed as dist

    dist.init_process_group("hccl", store=store, rank=rank, world_size=2)
    x = torch.ones(4, device=f"npu:{rank}")
    dist.all_reduce(x)
    torch.npu.synchronize()
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)  # the other one comes when it is told
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            torch.ones(3).sin()
            os._exit(0)
        began = time.monotonic()
        while not (found := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() - began < CHILD_SECONDS:
            time.sleep(0.01)
        if not found[0]:
            os.kill(child, 9)
            os.waitpid(child, 0)
        tell("child", found[1] if found[0] else "hung")
        store.set("come", "now")
        work.wait()
    else:
        store.wait(["come"])
        dist.all_reduce(x)
    tell("sum", x.cpu().tolist())
    dist.destroy_process_group()


def test_fork_while_a_collective_waits_for_its_peer(device, tmp_path):
    first, second = run_ranks(tmp_path, __file__, "wait_for_a_peer")
    assert first["child"] == 0
    assert first["sum"] == second["sum"] == [4.0] * 4


GROUPS = """
import torch.distributed as dist
dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(4, device="npu")
dist.all_reduce(x)
print(child(sys.exit), x.tolist())
dist.destroy_process_group()
"""


def test_a_child_of_a_process_with_groups_ends(device, tmp_path):
    """Destroying a group waits for gloo's threads, which the child does not have."""
    assert run(tmp_path, DEVICE + GROUPS) == ["0 [1.0, 1.0, 1.0, 1.0]"]


COST = """
import ctypes, statistics
from stepscope.simnpu.device import library_path
library = ctypes.CDLL(str(library_path()))
x = torch.ones(4, device="npu")
torch.npu.synchronize()
times = []
for _ in range(200):
    began = time.perf_counter()
    library.simnpu_hold_workers()
    library.simnpu_release_workers()
    times.append(time.perf_counter() - began)
print(statistics.median(times) < 0.001)
"""


def test_fork_costs_nothing_when_the_device_is_idle(device, tmp_path):
    assert run(tmp_path, DEVICE + COST) == ["True"]


# A file that takes its time, during which the interpreter's lock is free and the file's own is taken.
SLOW_FILE = """
import io

class Slow(io.RawIOBase):
    def writable(self):
        return True
    def seekable(self):
        return True
    def seek(self, place, whence=0):
        return 0
    def write(self, data):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.05)
        return len(data)

def slow_file():
    return io.TextIOWrapper(io.BufferedWriter(Slow()))

def keep_on(work):
    def again():
        while True:
            work()
    threading.Thread(target=again, daemon=True).start()
    time.sleep(0.1)
"""

MESSAGES = """
from stepscope.collect import messages
sys.stderr = slow_file()
keep_on(lambda: messages.info("still here"))
print([child(lambda: print("a word of the child", file=sys.stderr, flush=True)) for _ in range(5)], flush=True)
os._exit(0)  # the thread still prints
"""


def test_fork_while_a_thread_of_ours_prints(tmp_path):
    assert run(tmp_path, SLOW_FILE + MESSAGES) == [str([0] * 5)]


JOURNAL = """
from pathlib import Path
from stepscope.dynamic_profile import journal
journal._LogFile._open = lambda self: slow_file()
log = journal.Journal(Path("."), 0)

def write():
    log.config_file("INFO", "a line")
    log.flush()

keep_on(write)
print([child(sys.exit) for _ in range(5)], flush=True)
os._exit(0)  # the thread still writes
"""


def test_fork_while_the_watching_thread_writes(tmp_path):
    assert run(tmp_path, SLOW_FILE + JOURNAL) == [str([0] * 5)]


def test_a_capture_that_was_ending_at_the_fork():
    capture = CurrentCapture()
    capture._stopping.acquire()  # by the thread that watches the limits
    capture.forget()
    assert not capture._stopping.locked()

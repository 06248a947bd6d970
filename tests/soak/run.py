"""Long stresses that a test suite has no time for: `make soak`, or `python tests/soak/run.py forks kills captures steps`.

Each prints what it injected and what was lost, and ends with exit code 1 if anything was.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "faults" / "job")]
ROUND = 20  # forks of one process


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Other processes keep every core busy, so that threads are interrupted anywhere."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def forks(count: int) -> tuple[str, int]:
    """Fork while kernels run for the first time, with slow static initialisation and without."""
    import test_fork_in_flight as faults

    script = faults.PREAMBLE + faults.DEVICE + faults.FIRST_KERNELS.replace("range(8)", f"range({ROUND})")
    bad: list[str] = []
    done = {"with": 0, "without": 0}
    with tempfile.TemporaryDirectory() as folder, busy_cores():
        source, library = Path(folder, "slow.cpp"), Path(folder, "slow.so")
        source.write_text(faults.SLOW_STATICS)
        compiler = faults.compiler()
        if compiler is None:
            raise SystemExit("a C++ compiler is needed for the library that slows static variables down")
        slow = [compiler, "-fno-threadsafe-statics", "-shared", "-fPIC", str(source), "-o", str(library)]
        subprocess.run([*slow, "-Wl,--no-as-needed", "-lstdc++", "-ldl"], check=True)
        for word, preload in (("with", str(library)), ("without", "")):
            while done[word] < count:
                answer = _script(script, folder, LD_PRELOAD=preload)
                if answer.stdout.strip() != str([0] * ROUND):
                    bad.append(answer.stdout[-300:] + answer.stderr[-300:])
                done[word] += ROUND
                _progress(
                    f"forks: {done['with']} with, {done['without']} without slow static initialisation, {len(bad)} bad rounds"
                )
    return f"{done['with']} forks with and {done['without']} without slow static initialisation", _failed(bad)


def kills(count: int) -> tuple[str, int]:
    """Kill a job at any moment of a recording on the simulated NPU; no kernel on disk may lack its operator."""
    import polars as pl
    import test_killed_captures as faults

    import stepscope

    head = faults.SCRIPT.split("prof.start()")[0]
    script = head + (
        "import threading, time\n"
        "prof.start()\n"
        "threading.Timer(float(sys.argv[1]), os.kill, (os.getpid(), int(sys.argv[2]))).start()\n"
        "while True:\n    step()\n    prof.step()\n"
    )
    bad: list[str] = []
    kernels = linked = 0
    chance = random.Random(1)
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder:
            signal = (9, 15)[number % 2]
            answer = _script(script, folder, f"{chance.uniform(0.02, 0.6):.3f}", str(signal))
            found = list(Path(folder).rglob("*_ascend_pt"))
            if answer.returncode != -signal or len(found) != 1:
                bad.append(f"exit code {answer.returncode}: {answer.stderr[-300:]}")
                continue
            capture = stepscope.open(found[0])
            rows = capture.kernels.filter(~pl.col("extra"))
            kernels, linked = kernels + rows.height, linked + rows["op"].count()
            if capture.facts.profiler_info["collector"]["complete"] is not False:
                bad.append("the capture does not say that it did not end")
            _progress(f"kills: {number + 1}, {linked} of {kernels} kernels have their operator, {len(bad)} bad")
    # An operator that is still open when its kernel has ended is lost with the process: a few of thousands.
    if linked < 0.999 * kernels:
        bad.append(f"only {linked} of {kernels} kernels have their operator")
    return f"{count} kills, {linked} of {kernels} kernels on disk have their operator", _failed(bad)


CAPTURES = """
import gc, os, sys, threading
import torch
from stepscope import profiler as P

def step():
    torch.ones(4, requires_grad=True).sin().sum().backward()

def state():
    gc.collect()
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    return len(os.listdir("/proc/self/fd")), threading.active_count(), resident

handler = P.tensorboard_trace_handler("runs", async_mode=True)
for number in range(int(sys.argv[1])):
    with P.profile(on_trace_ready=handler, record_shapes=True, profile_memory=True):
        step()
    if number in (9, int(sys.argv[1]) - 1):
        print(*state(), flush=True)
os._exit(0)  # as abruptly as it gets
"""


def captures(count: int) -> tuple[str, int]:
    """Many captures of one job with analysis in the background; an abrupt end, after which all are analysed."""
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        answer = _script(CAPTURES, folder, str(count))
        states = [tuple(map(int, line.split())) for line in answer.stdout.splitlines() if line[:1].isdigit()]
        if answer.returncode or len(states) != 2:
            bad.append(answer.stdout[-500:] + answer.stderr[-500:])
        else:
            (files, threads, memory), (later_files, later_threads, later_memory) = states
            if later_files > files or later_threads > threads or later_memory > memory + 32:
                bad.append(
                    f"descriptors {files} to {later_files}, threads {threads} to {later_threads}, MB {memory} to {later_memory}"
                )
        until = time.monotonic() + 60 + 20 * count
        finished = 0
        while finished < count and time.monotonic() < until:
            finished = len(list(Path(folder).rglob("analyse.done")))
            _progress(f"captures: {finished} of {count} analysed")
            time.sleep(1)
        if finished < count:
            bad.append(f"{finished} of {count} captures were analysed after the job had ended")
    return f"{count} captures of one job, all analysed after its end; {states}", _failed(bad)


STEPS = """
import sys
import torch
import stepscope
from stepscope import profiler as P

torch.set_num_threads(1)
watch = stepscope.watch(record=0, rings="rings")

def train(prof=None):
    torch.manual_seed(1)
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=1e-5)
    for _ in range(int(sys.argv[1])):
        (weight * weight).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        prof and prof.step()
    return weight.detach().tolist()

expected = train()
endless = P.schedule(wait=0, active=10**9, repeat=1)
with P.profile(schedule=endless, on_trace_ready=P.tensorboard_trace_handler("runs", analyse_flag=False)) as prof:
    print("SAME" if train(prof) == expected else "OTHER", flush=True)
sys.exit(7)
"""


def steps(count: int) -> tuple[str, int]:
    """A very long capture: as many steps as a day has, each of them there, and the same result as without it."""
    bad: list[str] = []
    found = rows = 0
    with tempfile.TemporaryDirectory() as folder:
        answer = _script(STEPS, folder, str(count))
        if answer.returncode != 7 or answer.stdout.strip() != "SAME":
            bad.append(answer.stdout[-500:] + answer.stderr[-500:])
        else:
            import stepscope

            capture = stepscope.open(Path(folder, "runs"))
            found = capture.steps["step"].n_unique()
            rows = capture.ops.height
            kept = stepscope.open(Path(folder, "rings")).steps["step"].to_list()
            if found not in (count, count + 1):  # the one that begins when the last has ended
                bad.append(f"{found} of {count} steps are in the capture")
            if kept != list(range(2 * count - len(kept), 2 * count)):
                bad.append(f"the ring holds steps {kept[0]} to {kept[-1]} of {2 * count}")
    return f"{count} steps in one capture, {found} found with {rows} operators", _failed(bad)


SOAKS: dict[str, tuple[Callable[[int], tuple[str, int]], int]] = {
    "forks": (forks, 300),
    "kills": (kills, 40),
    "captures": (captures, 90),
    "steps": (steps, 100_000),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SOAKS), metavar="|".join(SOAKS))
    parser.add_argument("--count", type=int, help="how many, instead of the usual number")
    args = parser.parse_args()
    lost = 0
    for name in args.names:
        soak, usual = SOAKS[name]
        began = time.monotonic()
        text, bad = soak(args.count or usual)
        lost += bad
        print(f"\n{name}: {text}; {bad} failed; {time.monotonic() - began:.0f} s", flush=True)
    return int(lost > 0)


def _script(text: str, folder: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    source = Path(folder, "script.py")
    source.write_text(text)
    return subprocess.run(
        [sys.executable, str(source), *arguments],
        cwd=folder,
        env={**os.environ, "STEPSCOPE_MIN_FREE_BYTES": "0", **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def _failed(bad: list[str]) -> int:
    for text in bad:
        print(f"\nfailed: {text}", file=sys.stderr)
    return len(bad)


def _progress(text: str) -> None:
    print(f"\r{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

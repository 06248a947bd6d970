"""Every write, fsync and rename of a recording fails once, and from each one on all fail: training does not notice.

So do those of an analysis, which says so.

Every third, unless the run is thorough.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from thorough import THOROUGH

import stepscope
from stepscope.collect.tiers.observer import load_observer
from stepscope.errors import CaptureError

torch = pytest.importorskip("torch", reason="collecting needs torch")
pytestmark = pytest.mark.slow  # a process per call that fails

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
NATIVE = load_observer()
TIERS = ["kineto", pytest.param("native", marks=pytest.mark.skipif(isinstance(NATIVE, str), reason=str(NATIVE)))]

# Calls on files below `FAULTS_BELOW` are counted from `fault_arm` on; the one of that number fails, or all from it on.
FAULTS = """
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

static std::atomic<int> count{0};
static int failing = -1, error_number = 0, onwards = 0, armed = 0;

static bool fails(const char* path) {
  const char* below = getenv("FAULTS_BELOW");
  if (!armed || !below || strncmp(path, below, strlen(below)))
    return false;
  const int now = count++;
  if (failing < 0 || now < failing || (now > failing && !onwards))
    return false;
  errno = error_number;
  return true;
}

static bool fails(int number) {
  char link[64], path[PATH_MAX] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", number);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = 0;
  return fails(path);
}

template <class F> F next(F, const char* name) { return reinterpret_cast<F>(dlsym(RTLD_NEXT, name)); }

extern "C" {
void fault_arm(int number, int error, int all) { failing = number, error_number = error, onwards = all, count = 0, armed = 1; }
int fault_disarm() { armed = 0; return count; }
ssize_t write(int fd, const void* data, size_t size) {
  return fails(fd) ? -1 : next(&write, "write")(fd, data, size);
}
ssize_t writev(int fd, const iovec* parts, int many) { return fails(fd) ? -1 : next(&writev, "writev")(fd, parts, many); }
int fsync(int fd) { return fails(fd) ? -1 : next(&fsync, "fsync")(fd); }
int fdatasync(int fd) { return fails(fd) ? -1 : next(&fdatasync, "fdatasync")(fd); }
int rename(const char* from, const char* to) noexcept { return fails(to) ? -1 : next(&rename, "rename")(from, to); }
}
"""

TRAINING = """
import ctypes, errno, json, os, signal, sys, warnings
import torch
from stepscope import profiler as P

torch.set_num_threads(1)
root, error, onwards = os.environ["FAULTS_BELOW"], int(sys.argv[1]), int(sys.argv[2])
faults = ctypes.CDLL(None)

def train(prof=None):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        loss = model(torch.ones(3, 4)).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof and prof.step()
    return loss.item()

def recorded(number, answer):
    os.mkdir(os.path.join(root, str(number)))
    os.chdir(os.path.join(root, str(number)))
    faults.fault_arm(number, error, onwards)
    with P.profile(schedule=P.schedule(wait=0, active=1, repeat=1), on_trace_ready=lambda prof: None) as prof:
        loss = train(prof)
    os.write(answer, json.dumps([loss, faults.fault_disarm()]).encode())
    sys.exit(7)

def child(number):
    read, write = os.pipe()
    started = os.fork()
    if not started:
        signal.alarm(60)
        recorded(number, write)
    os.close(write)
    answer = b"".join(iter(lambda: os.read(read, 4096), b""))
    os.close(read)
    return os.waitstatus_to_exitcode(os.waitpid(started, 0)[1]), answer

expected = train()
calls = json.loads(child(-1)[1])[1]  # none fails
found = []
for number in range(0, calls, int(sys.argv[3])):
    code, answer = child(number)
    if code != 7 or not answer or json.loads(answer)[0] != expected:
        found.append([number, code, answer.decode()])
print(json.dumps({"calls": calls, "wrong": found}))
"""


@pytest.fixture(scope="module")
def faults(tmp_path_factory) -> str:
    compiler = next(filter(None, map(shutil.which, [os.environ.get("CXX", ""), "g++", "c++", "clang++"])), None)
    if compiler is None:
        reason = "no C++ compiler makes the library that lets writes fail"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    folder = tmp_path_factory.mktemp("faults")
    source, made = folder / "faults.cpp", folder / "faults.so"
    source.write_text(FAULTS)
    command = [compiler, "-shared", "-fPIC", str(source), "-o", str(made), "-Wl,--no-as-needed", "-lstdc++", "-ldl"]
    subprocess.run(command, check=True, timeout=120)
    return str(made)


def readable(capture: Path) -> bool:
    """Whether a recording has operators; one that cannot be read says so in our own words."""
    try:
        return stepscope.open(capture).ops.height > 0
    except CaptureError:
        return False


@pytest.mark.parametrize(("name", "number", "onwards"), [("ENOSPC", 28, 1), ("EIO", 5, 0)])
@pytest.mark.parametrize("tier", TIERS)
def test_training_ends_the_same_and_files_are_whole_or_absent(tmp_path, faults, tier, name, number, onwards):
    script, root = tmp_path / "train.py", tmp_path / "captures"
    script.write_text(TRAINING)
    root.mkdir()
    done = subprocess.run(
        [sys.executable, str(script), str(number), str(onwards), "1" if THOROUGH else "3"],
        env={
            **os.environ,
            "LD_PRELOAD": faults,
            "FAULTS_BELOW": str(root),
            "STEPSCOPE_COLLECTOR": tier,
            "STEPSCOPE_MIN_FREE_BYTES": "0",
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["wrong"] == [], f"{name}: [call, exit code, loss and calls] {done.stderr[-2000:]}"
    assert answer["calls"] >= 5
    assert "Traceback" not in done.stderr
    for file in root.rglob("*.json"):
        json.loads(file.read_bytes())
    captures = {int(path.parent.name): path for path in root.glob("*/*_ascend_pt")}
    assert readable(captures[-1])
    assert not readable(captures.get(0, root)), "the layer let no call fail"
    for capture in captures.values():
        readable(capture)
    left = [path.name for path in root.rglob("*") if path.suffix in (".partial", ".tmp")]
    assert left == []


ANALYSIS = """
import ctypes, json, os, shutil, signal, sys
from pathlib import Path
import polars, pyarrow
import stepscope.analyser, stepscope.cli.analyse, stepscope.export.text_files  # not used here: a fork would lack its threads
from stepscope.cli import main

root, source = Path(os.environ["FAULTS_BELOW"]), Path(sys.argv[4])
error, onwards, stride = map(int, sys.argv[1:4])
faults = ctypes.CDLL(None)

def analysed(number):
    folder = root / str(number) / source.name
    shutil.copytree(source, folder)
    read, write = os.pipe()
    started = os.fork()
    if not started:
        signal.alarm(120)
        said = os.open(root.parent / f"{number}.said", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        faults.fault_arm(number, error, onwards)
        code = main(["analyse", str(folder)])
        os.write(write, json.dumps([code, faults.fault_disarm()]).encode())
        os._exit(0)
    os.close(write)
    answer = b"".join(iter(lambda: os.read(read, 4096), b""))
    os.close(read)
    os.waitpid(started, 0)
    return json.loads(answer or "[null, 0]")

code, calls = analysed(-1)
found = {-1: code} | {number: analysed(number)[0] for number in range(0, calls, stride)}
print(json.dumps({"calls": calls, "codes": found}))
"""


@pytest.mark.parametrize(("name", "number", "onwards"), [("ENOSPC", 28, 1), ("EIO", 5, 0)])
def test_analyses_fail_clearly_and_their_files_are_whole_or_absent(tmp_path, faults, name, number, onwards):
    with tarfile.open(CAPTURES / "npu-level1.tar.xz") as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    script, root = tmp_path / "analyse.py", tmp_path / "captures"
    script.write_text(ANALYSIS)
    root.mkdir()
    done = subprocess.run(
        [sys.executable, str(script), str(number), str(onwards), "5" if THOROUGH else "70", str(source)],
        env={**os.environ, "LD_PRELOAD": faults, "FAULTS_BELOW": str(root), "POLARS_MAX_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["calls"] > 100
    assert answer["codes"].pop("-1") == 0
    # Only writes of the store, which is a copy, and of the log may fail without a word; with all later ones, the log's last.
    good = [number for number, code in answer["codes"].items() if code == 0]
    assert set(answer["codes"].values()) <= {0, 3}, answer["codes"]
    assert not onwards or all(int(number) > 0.98 * answer["calls"] for number in good), answer["codes"]
    whole = _results(root / "-1" / source.name)
    for folder in (root / text / source.name for text in answer["codes"]):
        said = (tmp_path / f"{folder.parent.name}.said").read_text()
        assert "Traceback" not in said, said
        assert "Logging error" not in said, said
        found = _results(folder)
        assert found.items() <= whole.items(), f"{name}: {folder.parent.name}"
        assert folder.parent.name not in good or found == whole, f"{name}: {folder.parent.name}"


def _results(folder: Path) -> dict[str, int]:
    """Sizes of what an analysis has left, but for its log and the store, which is checked when it is opened."""
    left = [path for path in folder.rglob("*") if path.is_file() and not {"logs", ".stepscope"} & set(path.parts)]
    return {str(path.relative_to(folder)): path.stat().st_size for path in left}

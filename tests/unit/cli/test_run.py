"""`stepscope run`: the script runs as Python would run it, finds the device, and is profiled if asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from npu_process import reason_without_device

import stepscope
from stepscope.cli import main

RUN = [sys.executable, "-m", "stepscope", "run"]


def started(*words, cwd, **environment):
    whole = {**os.environ, "STEPSCOPE_MIN_FREE_BYTES": "0", **environment}
    return subprocess.run([*words], cwd=cwd, env=whole, capture_output=True, text=True, timeout=300, check=False)


def script(folder, text, name="train.py"):
    (folder / name).write_text(textwrap.dedent(text))
    return name


PLAIN = """
import sys, os
print(sys.argv, __name__, __file__, sys.path[0], sys.flags.optimize)
def inner():
    raise KeyError("mine")
if sys.argv[1] == "fault":
    inner()
if sys.argv[1] == "signal":
    import signal
    os.kill(os.getpid(), signal.SIGTERM)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("words", [["7", "--devices", "--", "-m"], ["fault"], ["signal"]], ids=["code", "fault", "signal"])
def test_a_script_sees_what_python_gives_it(words, tmp_path):
    name = script(tmp_path, PLAIN)
    plain, ours = (started(*start, name, *words, cwd=tmp_path) for start in ([sys.executable], [*RUN, "--devices", "3"]))
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert ours.returncode == {"7": 7, "fault": 1, "signal": -15}[words[0]]


def test_profiling_without_torch_is_one_error(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["run", "--profile", "steps=1", "train.py"]) == 3
    shown = capsys.readouterr().err
    assert shown.startswith(
        "error: nothing can be recorded\n  cause: torch is not installed in this Python\n  do this: pip install"
    )


def test_modules_and_missing_files_are_pythons_own(tmp_path):
    script(tmp_path, "import sys; print(sys.argv[1:], __spec__.name)", "mine.py")
    done = started(*RUN, "-m", "mine", "-x", cwd=tmp_path)
    assert done.stdout == "['-x'] mine\n"
    done = started(*RUN, "absent.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "can't open file" in done.stderr


def test_the_vendors_package_is_never_shadowed(tmp_path):
    (tmp_path / "vendor" / "torch_npu").mkdir(parents=True)
    script(tmp_path / "vendor" / "torch_npu", "who = 'vendor'", "__init__.py")
    name = script(tmp_path, "import sys; sys.path += sys.argv[1:]\nimport torch_npu\nprint(torch_npu.who)")
    # Known when the script starts, and known only to the script: then ours comes first on the path.
    assert started(*RUN, name, cwd=tmp_path, PYTHONPATH=str(tmp_path / "vendor")).stdout == "vendor\n"
    assert started(*RUN, name, str(tmp_path / "vendor"), cwd=tmp_path).stdout == "vendor\n"


PLANS = {
    "steps=3:5,level=1,memory,stack,out=runs": {"first": 3, "last": 5, "folder": "runs", "level": "Level1"},
    "steps=0,level=none,mstx,ranks=0+2:3": {"first": 0, "last": 0, "ranks": [0, 2, 3], "level": "Level_none"},
    "steps=5:3": "steps=5:3 is not first:last",
    "level=7": "level=7 is not one of none, 0, 1, 2",
    "stack=1": "unknown word 'stack=1'; known words are steps=FIRST:LAST",
    "out=": "unknown word 'out='",
}
ASK = """
import json, sys
from stepscope.integrations.plan import parse
for text in json.loads(sys.argv[1]):
    try:
        plan = parse(text)
        ranks = None if plan.ranks is None else sorted(plan.ranks)
        print(json.dumps({"first": plan.first, "last": plan.last, "folder": plan.folder, "ranks": ranks,
                          "level": plan.experimental["profiler_level"], "switches": sorted(plan.switches)}))
    except ValueError as problem:
        print(json.dumps(str(problem)))
"""


def test_what_to_profile(tmp_path):
    done = started(sys.executable, "-c", ASK, json.dumps(list(PLANS)), cwd=tmp_path)
    answers = dict(zip(PLANS, map(json.loads, done.stdout.splitlines()), strict=True))
    for text, expected in PLANS.items():
        if isinstance(expected, str):
            assert answers[text].startswith(expected)
        else:
            assert {name: answers[text][name] for name in expected} == expected
    assert answers["steps=3:5,level=1,memory,stack,out=runs"]["switches"] == ["profile_memory", "with_stack"]
    wrong = started(*RUN, "--profile", "level=7", "train.py", cwd=tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr.endswith("error: argument --profile: level=7 is not one of none, 0, 1, 2\n")


# Two optimizers, a child process with the device, CUDA's words, and a way out with a code of its own.
TRAINING = """
import sys
import torch
import torch.multiprocessing as processes
from torch_npu.contrib import transfer_to_npu

def child(number):
    import torch_npu
    print("child", number, torch.ones(2, device=f"npu:{number}").sum().item(), torch.npu.device_count(), flush=True)

if __name__ == "__main__":
    processes.spawn(child, nprocs=1)
    first, second = torch.nn.Linear(8, 8).cuda(), torch.nn.Linear(8, 8).to(torch.device("cuda"))
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (first, second)]
    batch = torch.ones(4, 8, device=torch.device("cuda:0"))
    for step in range(5):
        second(first(batch)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert torch.cuda.device_count() == torch.npu.device_count() and torch.cuda.is_available() == torch.npu.is_available()
    print(batch.device, batch.is_cuda, torch.cuda.memory_allocated() > 0)
    sys.exit(5)
"""


@pytest.mark.slow  # a training process, a child of it and an analysis
def test_a_script_without_profiling_code_is_profiled(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    reason = reason_without_device()
    if reason:
        pytest.skip(f"no simulated NPU: {reason}")
    name = script(tmp_path, TRAINING)
    done = started(*RUN, "--devices", "3", "--profile", "steps=2:3,level=1,memory,shapes,out=kept", name, cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    assert done.stdout.splitlines() == ["child 0 2.0 3", "npu:0 True True"]
    (capture,) = (tmp_path / "kept").glob("*_ascend_pt")
    assert f"next: stepscope top kept/{capture.name}" in done.stderr.replace(f"{tmp_path}/", "")
    opened = stepscope.open(capture)
    assert opened.steps["step"].to_list() == [2, 3]
    assert (opened.ops["name"] == "Optimizer.step#SGD.step").sum() == 4
    assert opened.kernels.filter(opened.kernels["name"].cast(str).str.contains("MatMul")).height == 2 * (2 + 3)
    assert (capture / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").is_file()


INFERENCE = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
with torch.no_grad():
    for _ in range(6):
        net(torch.ones(2, 8))
"""


@pytest.mark.slow  # a process with torch and an analysis
def test_a_script_without_torch_is_told_once(tmp_path):
    path = script(
        tmp_path,
        """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        print("done")
        """,
    )
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("print('theirs', flush=True)")
    done = started(*RUN, "--profile", "steps=1:2", path, cwd=tmp_path, PYTHONPATH=str(tmp_path / "theirs"))
    assert (done.returncode, done.stdout) == (0, 3 * "theirs\n" + "done\n")  # the command, the script, its child
    assert done.stderr.count("recorded nothing: the script never imported torch") == 1
    assert done.stderr.count("\n") == 1


def test_the_sitecustomize_of_the_machine_still_runs(tmp_path):
    """Python imports the first one that it finds; ours imports the next."""
    # Not imported: stepscope.compat changes the process, and those that it starts.
    end_folder = str(Path(stepscope.__file__).parent / "compat" / "end_of_script")
    (tmp_path / "sitecustomize.py").write_text("print('of the machine')")
    path = os.pathsep.join([end_folder, str(tmp_path)])
    done = subprocess.run([sys.executable, "-c", ""], capture_output=True, text=True, check=True, env={"PYTHONPATH": path})
    assert (done.stdout, done.stderr) == ("of the machine\n", "")


@pytest.mark.slow  # starts processes with torch
def test_inference_on_the_cpu_is_profiled_by_calls_and_without_the_simulated_device(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    name = script(tmp_path, INFERENCE)
    done = started(*RUN, "--profile", "steps=2:3,out=kept", name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    (capture,) = (tmp_path / "kept").glob("*_ascend_pt")
    opened = stepscope.open(capture)
    assert opened.steps["step"].to_list() == [2, 3]
    assert (opened.ops["name"] == "aten::addmm").sum() == 2
    assert opened.facts.profiler_info["collector"]["device"] == "cpu"
    assert not list(capture.glob("PROF_*"))


ON_THE_CPU = """
import torch
import torch_npu
torch.distributed.init_process_group("hccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
batch = torch.ones(4, 8, device="npu:1", requires_grad=True)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).to(torch.device("npu")))
with torch.autocast("npu", dtype=torch.bfloat16), torch_npu.profiler.profile() as prof:
    model(batch.npu()).float().sum().backward()
torch.manual_seed(3)
torch.npu.manual_seed_all(3)
marks = torch_npu.npu.mstx()
marks.mark("an instance, as the vendor's class gives one")
print(batch.device, batch.grad.shape, torch.npu.is_available(), torch_npu.npu_swiglu(batch).shape)
prof.export_chrome_trace("trace.json")
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow  # a training process
def test_without_a_compiler_it_goes_on_on_the_cpu_and_says_so(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    name = script(tmp_path, ON_THE_CPU)
    done = started(*RUN, name, cwd=tmp_path, CXX="no-such-compiler", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "cpu torch.Size([4, 8]) False torch.Size([4, 4])"
    assert "stepscope: the simulated NPU is not available: no C++ compiler found" in done.stderr
    assert "tensors sent to `npu` stay on the CPU" in done.stderr
    assert "failed" not in done.stdout + done.stderr
    assert "aten::addmm" in (tmp_path / "trace.json").read_text()


# What a script may import first; torch comes after it.
FIRST = [
    "import torch_npu",
    "import torch_npu.contrib.transfer_to_npu",
    "from torch_npu.profiler import dynamic_profile",
    "import mindspeed_mm.tools.profiler",
]
WATCHED = """
import torch
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
import torch_npu
print("trained", torch_npu.profiler.__name__)
"""


@pytest.mark.slow  # each is a process that imports torch
@pytest.mark.parametrize("first", FIRST)
def test_prof_config_path_works_in_any_order_of_imports(first, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "watched").mkdir()
    name = script(tmp_path, f"{first}\n{WATCHED}")
    done = started(*RUN, name, cwd=tmp_path, PROF_CONFIG_PATH=str(tmp_path / "watched"))
    assert (done.returncode, done.stdout) == (0, "trained stepscope.profiler\n"), done.stderr
    assert "Failed to load" not in done.stderr
    assert (tmp_path / "watched" / "profiler_config.json").exists()


LOOP = """
import sys
import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
sys.exit(5)
"""


@pytest.mark.slow  # starts scripts with torch
def test_the_variable_alone_records_and_the_exit_code_stays(tmp_path):
    name = script(tmp_path, LOOP)
    done = started(sys.executable, name, cwd=tmp_path, STEPSCOPE_PROFILE="steps=2:3,out=runs")
    assert done.returncode == 5, done.stderr
    (capture,) = (tmp_path / "runs").iterdir()
    assert f"next: stepscope verdict {capture}" in done.stderr
    top = started(sys.executable, "-m", "stepscope", "top", "runs", "--by", "step", cwd=tmp_path)
    assert [line.split("\t")[0] for line in top.stdout.splitlines()] == ["step", "2", "3"]
    wrong = started(sys.executable, name, cwd=tmp_path, STEPSCOPE_PROFILE="stesp=2:3")
    assert wrong.returncode == 5
    assert wrong.stderr.count("\n") == 1
    assert "STEPSCOPE_PROFILE=stesp=2:3 is not understood, so nothing is recorded: unknown word" in wrong.stderr


@pytest.mark.slow  # starts scripts with torch
def test_any_command_is_recorded(tmp_path):
    name = script(tmp_path, LOOP)
    record = (sys.executable, "-m", "stepscope", "record", "--profile", "steps=2:3,out=runs", "--")
    done = started(*record, sys.executable, name, cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    (capture,) = (tmp_path / "runs").iterdir()
    assert f"1 capture in runs; next: stepscope verdict runs/{capture.name}" in done.stderr
    elsewhere = (*record[:-2], "out=other", "--")
    none = started(*elsewhere, sys.executable, "-c", "print(7)", cwd=tmp_path)
    assert (none.returncode, none.stdout) == (0, "7\n")
    assert none.stderr.startswith("no capture was written to other: either the steps were not reached, or")
    assert started(*record, "no-such-program", cwd=tmp_path).returncode == 2
    assert started(*record, cwd=tmp_path).stderr.startswith("error: there is no command to run")


WAITS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.slow  # starts processes
def test_a_signal_to_record_reaches_the_command(tmp_path):
    command = [sys.executable, "-m", "stepscope", "record", "--", sys.executable, script(tmp_path, WAITS)]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stdout.readline() == b"ready\n"
        job.terminate()
        assert job.wait(60) == 7

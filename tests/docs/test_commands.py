"""Every command that a page shows runs, with inputs of the names that it has; of the few that cannot, the list says why."""

from __future__ import annotations

import argparse
import gzip
import http.server
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import snapshot
from npu_process import reason_without_device
from thorough import some

from stepscope.cli import COMMANDS as COMMANDS_BY_NAME
from stepscope.cli import main, module_of, parser

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:[A-Z_]+=\S* )*(?:stepscope|python|torchrun|tensorboard|dask|helm|pip|vllm|eval|\.) ")

NOT_RUN = {
    r"pip install|python -m venv|\. \.venv": "installs from the network; tests/packages installs what was built",
    r"helm ": "needs a cluster with Kubernetes",
    r"dask (scheduler|worker|ssh)|--scheduler": "needs several machines; tests/cluster runs them on one",
    r"(s3|obs|gs|hdfs)://": "needs a bucket; tests/cluster serves one",
    r"vllm serve": "needs vLLM; tests/unit/integrations runs the plugin against its interface",
    r"stepscope publish": "needs a tracker; tests/packages has an environment with both",
    r"python -m stepscope\.mindspore": "needs MindSpore; tests/mindspore_runs has an environment with it",
    r"python train\.py &|ctl \S+ (start|status)(?! --seconds)": "needs a job beside it: the test of a running job below",
}


PYTHON_NOT_RUN = {
    "dask_jobqueue": "needs Slurm",
    "dask_kubernetes": "needs a cluster with Kubernetes",
    "stepscope.mindspore": "needs MindSpore; tests/mindspore_runs has an environment with it",
    "train(model, device, Samples(": "two lines of the script above it, which the demo runs",
    "slow_loader.py": "the script itself, which the demo runs",
}


# Pages whose blocks run elsewhere, or that show nothing that could run.
ELSEWHERE = {
    "views.md": "tests/unit/query runs each query",
    "architecture.md": "a picture, and a line of a table's definition",
    "contributing/add-a-format.md": "tests/unit/formats runs its code as a package",
    "formats/framework.md": "tests/unit/formats/framework holds its bytes against the reader; the rest is grammar",
    "formats/cann.md": "names of files and formulas",
    "formats/outputs.md": "an algorithm in words, and the form of a file",
}


def test_every_block_is_on_a_page_that_runs_or_is_listed():
    beside = {page for page in DOCS.rglob("*.md") if not page.name.endswith((".zh-CN.md", ".zh.md")) and "zh" not in page.parts}
    with_code = {page.relative_to(DOCS).as_posix() for page in beside - set(pages()) if _BLOCK.search(page.read_text("utf-8"))}
    assert with_code == set(ELSEWHERE)


def pages() -> list[Path]:
    found = [ROOT / "README.md", *DOCS.glob("*.md"), *(DOCS / "en").rglob("*.md")]
    return sorted(
        page for page in found if not page.name.endswith(".zh-CN.md") and page.name not in ("architecture.md", "views.md")
    )


def shown() -> Iterator[tuple[str, str]]:
    """Each command with the name of its page."""
    for page in pages():
        for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
            if block["info"] not in ("console", "bash", ""):
                continue  # those to run without more are tested in test_documents.py
            code = re.sub(r"\\\n\s*", "", block["code"])
            marked = "\n$ " in f"\n{code}"
            for line in code.splitlines():
                text = line.removeprefix("$ ")
                if (line.startswith("$ ") if marked else True) and _COMMAND.match(text):
                    yield page.relative_to(ROOT).as_posix(), re.sub(r"\s+# .*", "", text).strip()


def reason(line: str) -> str | None:
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, line)), None)


def adapted(line: str) -> str:
    """The command on this machine: fewer processes, free ports, rings in the folder."""
    line = line.replace("--nproc-per-node 8", "--nproc-per-node 2").replace("ranks=0+8", "ranks=0")
    line = line.replace("--nproc 4", "--nproc 2").replace("--devices 4", "--devices 2").replace("rank=3", "rank=1")
    line = line.replace("STEPSCOPE_WATCH=1", "STEPSCOPE_WATCH=rings=rings").replace("/dev/shm/stepscope-watch-$(id -u)", "rings")
    line = re.sub(r"(torchrun(?: --nproc-per-node 2)?) ", r"\1 --master-port 0 ", line)
    line = line.replace("--epochs 3", "").replace(" --bind 0.0.0.0", " --bind 127.0.0.1")
    line = re.sub(r"watch --serve(?! --no-http)", "watch --serve --port 0", line)
    line = line.replace("http://collector:4318", "http://127.0.0.1:9")
    return line.replace("tensorboard ", "tensorboard --port 0 ")


COMMANDS = list(shown())
# Each once as it runs here, with the first page that shows it.
_FIRST = {adapted(line): (page, line) for page, line in reversed(COMMANDS) if reason(line) is None}
PLAIN = list(_FIRST.values())


def _uses_torch(line: str) -> bool:
    return bool(re.search(r"torchrun|python train|stepscope (run|record|doctor)", line))


# Those that start torch take seconds each: without STEPSCOPE_THOROUGH the README's, and every ninth of other pages.
QUICK = [(page, line) for page, line in PLAIN if page == "README.md" or not _uses_torch(line)]
TRIED = [*QUICK, *some([one for one in PLAIN if one not in QUICK], 9)]


def test_commands_that_do_not_run_are_few_and_of_the_listed_kinds():
    for pattern in NOT_RUN:
        assert any(re.search(pattern, line) for _, line in COMMANDS), f"no page shows {pattern} any more"
    assert len(PLAIN) > 50
    assert len(COMMANDS) - len(PLAIN) < len(PLAIN)


# In a sentence, in either language; what is no command of ours is not followed by words.
_INLINE = re.compile(r"`(stepscope [a-z][^`]*)`")


def named() -> dict[str, str]:
    """Each command that a sentence names, pages of formats and rules included, with the first page that has it."""
    every = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")], reverse=True)
    pages = [(page, page.read_text("utf-8")) for page in every if page.name != "CHANGELOG.md"]
    return {found[1]: page.relative_to(ROOT).as_posix() for page, text in pages for found in _INLINE.finditer(text)}


@pytest.mark.parametrize("line", [pytest.param(line, id=f"{page}-{line[:60]}") for line, page in sorted(named().items())])
def test_a_command_in_a_sentence_exists_with_its_options(line: str):
    made = parser({name: module_of(name) for name in COMMANDS_BY_NAME})
    (below,) = (action for action in made._actions if isinstance(action, argparse._SubParsersAction))
    name, *rest = line.removeprefix("stepscope ").split()
    assert name in below.choices
    ours = rest[: rest.index("-m")] if "-m" in rest else rest[: rest.index("--")] if "--" in rest else rest
    known = below.choices[name]._option_string_actions
    options = [word.strip("[]").partition("=")[0] for word in ours]
    assert [word for word in options if word.startswith("-") and word not in known] == []


TRAIN = """
import sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "npu" if hasattr(torch, "npu") and torch.npu.is_available() else "cpu"
model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(torch.randn(16 * int(sys.argv[1] if sys.argv[1:2] else 106), 16)), batch_size=16):
    optimizer.zero_grad()
    model(batch.to(device)).square().mean().backward()
    optimizer.step()
    if sys.argv[1:2]:
        print("a step has ended", flush=True)
        time.sleep(0.01)
"""
# Names on the pages, and the capture that stands for each.
CAPTURES = {
    **dict.fromkeys(["runs", "runs/llama", "demo-run", "stepscope-watch/captures"], "npu-ranks"),
    **dict.fromkeys(
        ["runs/main", "runs/branch", "result", *(f"{side}{n}" for side in ("main", "branch") for n in "123")], "npu-level1"
    ),
    "log": "kineto-cpu",
}


class World:
    """A folder in which the names of a command exist."""

    def __init__(self, folder: Path, unpacked: Path):
        self._folder, self._unpacked = folder, unpacked

    def prepare(self, line: str) -> None:
        words = {word.rstrip("/") for word in re.split(r"[\s,=]+", line)}
        for name, capture in CAPTURES.items():
            if name in words:
                self._place(capture, name)
        if "runs/nightly" in words:
            for night in range(20):  # so many it takes to find a change
                self._place("npu-level1", f"runs/nightly/{night}")
        (trace,) = self.capture("kineto-cpu").iterdir()
        shutil.copy(trace, self._folder / "training.pt.trace.json")
        (self._folder / "trace.json.gz").write_bytes(gzip.compress(trace.read_bytes()))
        if "rank0_ascend_pt" in words:
            shutil.copytree(next(self.capture("npu-level1").iterdir()), self._folder / "rank0_ascend_pt")
        (self._folder / "budget.toml").write_text('step_ms = {max_increase = "3%"}\nmin_steps = 1\n')
        (self._folder / "slow_steps.sql").write_text("SELECT * FROM v_steps")
        (self._folder / "token").write_text("a-token-of-32-letters-or-more-0123456789")
        for script in ("train.py", "package/train.py"):
            (self._folder / script).parent.mkdir(exist_ok=True)
            (self._folder / script).write_text(TRAIN)
        shutil.copy(ROOT / "examples" / "slow_loader.py", self._folder)
        shutil.copytree(ROOT / "examples", self._folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))

    def capture(self, name: str) -> Path:
        folder = self._unpacked / name
        if not folder.exists():
            snapshot.unpack(name, folder)
        return folder

    def _place(self, capture: str, name: str) -> None:
        shutil.copytree(self.capture(capture), self._folder / name)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("unpacked")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of an installation: the commands are on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, module in (("stepscope", "stepscope"), ("torchrun", "torch.distributed.run"), ("tensorboard", "tensorboard.main")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for file in folder.iterdir():
        file.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ["PYTHONPATH"]]),
        "STEPSCOPE_MIN_FREE_BYTES": "0",
        "OMP_NUM_THREADS": "1",
        "LC_ALL": "C.UTF-8",
        "BROWSER": "true",
    }


@pytest.mark.slow  # many commands, some of which start torch
@pytest.mark.parametrize("line", [pytest.param(line, id=f"{page}-{line[:60]}") for page, line in TRIED])
def test_a_command_runs(line: str, tmp_path: Path, unpacked: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "world"
    folder.mkdir()
    if _uses_torch(line):
        pytest.importorskip("torch", reason="torch is not installed")
    if "stepscope run" in line and (missing := reason_without_device()):
        pytest.skip(f"no simulated NPU: {missing}")
    if line.startswith("tensorboard"):
        pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    World(folder, unpacked).prepare(line)
    text = adapted(line)
    if "stepscope-watch-$" in line:
        _shell("STEPSCOPE_WATCH=rings=rings python train.py", folder, environment)
    if re.match(r"stepscope view|stepscope watch --serve|tensorboard", text):
        _serve_until_it_says_where(text, folder, environment)
    elif "http://a:8000" in text:
        with _Servers() as addresses:
            _shell(text.replace("http://a:8000,http://b:8000", ",".join(addresses)), folder, environment)
    elif text.startswith("stepscope ") and not re.search(r"[|&]|stepscope (run|record|doctor)", text):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("STEPSCOPE_KERNELS", "0")  # builds none beside the tests
        # 1: a finding above the limit that the command names; two captures of 1 step are too few for a gate.
        assert main(shlex.split(text)[1:]) in ((0, 1, 3) if re.search(r"--gate|--fail-on", text) else (0,))
    else:
        _shell(text, folder, environment)


def _shell(line: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def _serve_until_it_says_where(line: str, folder: Path, environment: dict[str, str]) -> None:
    with subprocess.Popen(
        ["bash", "-c", f"exec {line}"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        said = []
        for text in server.stdout:
            said.append(text)
            if "http://" in text:
                break
        server.send_signal(signal.SIGINT)
        server.stdout.read()
        server.wait(60)
    assert any("http://" in text for text in said), said


class _Servers:
    """Two inference servers that accept the requests of a profiler."""

    def __enter__(self) -> list[str]:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(200)
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self._servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in "ab"]
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        return [f"http://127.0.0.1:{server.server_address[1]}" for server in self._servers]

    def __exit__(self, *problem: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


@pytest.mark.slow  # a job runs beside it
def test_commands_for_a_running_job(tmp_path: Path, environment: dict[str, str]):
    pytest.importorskip("torch", reason="torch is not installed")
    lines = [line for _, line in COMMANDS if re.search(r"stepscope ctl \S+ (start|status)(?! --seconds)", line)]
    assert len(lines) > 4
    (tmp_path / "train.py").write_text(TRAIN)
    folder = tmp_path / "prof"
    # As the first line of the block: no change in the script.
    with subprocess.Popen(
        ["bash", "-c", "exec python train.py 100000"],
        cwd=tmp_path,
        env={**environment, "PROF_CONFIG_PATH": str(folder), "STEPSCOPE_POLL_SECONDS": "0.2"},
        stdout=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline()  # from here on it follows requests
        threading.Thread(target=job.stdout.read, daemon=True).start()
        try:
            for line in lines:
                text = re.sub(r"ctl \S+", f"ctl {folder}", line)
                said = _shell(f"{text} --wait" if " start" in text else text, tmp_path, environment)
                assert said, line
        finally:
            job.kill()


def programs() -> list[pytest.param]:
    """The Python of each page, in order: later blocks use the names of earlier ones."""
    found = []
    for page in pages():
        codes = [block["code"] for block in _BLOCK.finditer(page.read_text(encoding="utf-8")) if block["info"] == "python"]
        run = [code for code in codes if not any(word in code for word in PYTHON_NOT_RUN)]
        if run:
            found.append(pytest.param("\n".join(run), id=page.relative_to(ROOT).as_posix()))
    return found


BEFORE = """
import torch, stepscope
model = torch.nn.Linear(4, 4)
batches = [torch.ones(2, 4) for _ in range(8)]
loader = iter(batches)
def train(batch):
    model(batch).sum().backward()
train_one_step = train
"""


@pytest.mark.slow  # starts torch
@pytest.mark.parametrize("code", programs())
def test_the_python_of_a_page_runs(code: str, tmp_path: Path, unpacked: Path, environment: dict[str, str]):
    pytest.importorskip("torch", reason="torch is not installed")
    if "npu:0" in code:
        pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    folder = tmp_path / "world"
    folder.mkdir()
    world = World(folder, unpacked)
    world.prepare("runs/llama" if "runs/llama" in code else "")
    if found := re.search(r"runs/node0_\w+", code):
        shutil.copytree(next(world.capture("npu-level1").iterdir()), folder / found[0])
    (folder / "tools.json").write_text(
        '{"profile": {"enable": true, "profile_type": "static", "static_param": {"save_path": "runs"}}}'
    )
    (folder / "page.py").write_text(f"{BEFORE}\nif __name__ == '__main__':\n{textwrap.indent(code, '    ')}\n")
    _shell("python page.py", folder, environment)


def test_python_that_does_not_run_is_of_the_listed_kinds():
    text = "".join(page.read_text(encoding="utf-8") for page in pages())
    assert [word for word in PYTHON_NOT_RUN if word not in text] == []
    assert len(programs()) > 4

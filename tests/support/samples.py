"""Code blocks of the documents, read when the tests run; what a sample leaves open is supplied here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from shared_data import SEEDS

COLLECTION = "001"  # the document of the collection samples
TEXT_FILES = {"analyse.done", "trace_view.json", "operator_details.csv", "ascend_pytorch_profiler.db"}
_BLOCK = re.compile(r"^(?P<indent>[ \t]*)```[a-z]*\n(?P<code>.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)


def blocks(document: str, *holding: str) -> list[str]:
    """Code blocks of a document (by the start of its file name) that hold all the given texts."""
    (path,) = SEEDS.folder().glob(f"{document}_*.txt")
    found = [textwrap.dedent(match["code"]) for match in _BLOCK.finditer(path.read_text(encoding="utf-8"))]
    return [code for code in found if all(text in code for text in holding)]


def block(document: str, *holding: str) -> str:
    (only,) = blocks(document, *holding)
    return only


def fields(document: str, table: str) -> list[str]:
    """First column of a table of a document, by the words in its title."""
    (path,) = SEEDS.folder().glob(f"{document}_*.txt")
    _, _, after = path.read_text(encoding="utf-8").partition(f"**  {table}<")
    rows = [line for line in after.split("**")[0].splitlines() if line.startswith("|")]
    return [row.split("|")[1].strip() for row in rows[2:]]


# Names that the samples use without defining them.
OPEN_ENDS = """
import torch, json
torch.manual_seed(0)
def network():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
model = network().to("npu")
optimizer = torch.optim.AdamW(model.parameters())
input_data = torch.rand(4, 8)
steps = epochs = 5
text, key, value = "text", "model", json.dumps({"layers": 2})
def train_one_step():
    optimizer.zero_grad()
    model(torch.rand(4, 8).to("npu")).sum().backward()
    optimizer.step()
train_model_step = train_one_step
"""


def write(folder: Path, code: str, *, before: str = "", after: str = "") -> Path:
    """A sample as a script of its own, with what it leaves open; only that is added."""
    folder.mkdir(exist_ok=True)
    (folder / "opened.py").write_text(OPEN_ENDS)
    script = folder / "sample.py"
    script.write_text("from opened import *\n" + before + "\n" + code + "\n" + after)
    return script


def start(folder: Path, script: Path, *arguments: str, devices: int = 2, **environment: str) -> subprocess.Popen[str]:
    """`stepscope run` of a script. A warning of Python is an error."""
    return subprocess.Popen(
        [sys.executable, "-m", "stepscope", "run", f"--devices={devices}", str(script), *arguments],
        cwd=folder,
        env={**os.environ, "STEPSCOPE_MIN_FREE_BYTES": "0", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    return out


def run(folder: Path, code: str, *arguments: str, before: str = "", after: str = "", devices: int = 2, **environment: str) -> str:
    """Run a sample on the simulated NPU; its output."""
    return output(start(folder, write(folder, code, before=before, after=after), *arguments, devices=devices, **environment))


def captures(folder: Path) -> list[Path]:
    return sorted(Path(folder).glob("*_ascend_pt"))


def results(capture: Path) -> set[str]:
    return {path.name for path in (capture / "ASCEND_PROFILER_OUTPUT").iterdir()}

"""The documents: both languages say the same, what they show runs, what is made from the code is up to date, the site builds."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from npu_process import reason_without_device
from thorough import THOROUGH

from stepscope.capture import open_all
from stepscope.cli import main
from stepscope.cluster.read.reading import Options
from stepscope.cluster.report import lines
from stepscope.cluster.run import analyse_run, load
from stepscope.verdict import verdict

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS / "en").as_posix() for path in (DOCS / "en").rglob("*.md"))
_BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)


def blocks(text: str) -> list[tuple[str, str]]:
    return [(found["info"], found["code"]) for found in _BLOCK.finditer(text)]


def page(language: str, name: str) -> str:
    return (DOCS / language / name).read_text(encoding="utf-8")


def _without_language(info: str, code: str) -> str:
    """A list of pages names those of its own language."""
    return re.sub(r"\.zh(-CN)?$", "", code, flags=re.MULTILINE) if info == "{toctree}" else code


def test_both_languages_have_the_same_pages():
    assert sorted(path.relative_to(DOCS / "zh").as_posix() for path in (DOCS / "zh").rglob("*.md")) == PAGES
    assert len(PAGES) > 20


@pytest.mark.parametrize("name", PAGES)
def test_both_languages_have_the_same_headings_and_code(name: str):
    english, chinese = (page(language, name) for language in ("en", "zh"))
    assert blocks(english) == [(info, _without_language(info, code)) for info, code in blocks(chinese)]
    without = [_BLOCK.sub("", text) for text in (english, chinese)]
    assert _HEADING.findall(without[0]) == _HEADING.findall(without[1])
    assert len(_HEADING.findall(without[0])) >= 1
    assert without[0].count("\n| ") == without[1].count("\n| ")
    assert re.search(r"[\u4e00-\u9fff]", chinese) or name in ("reference/python.md", "index.md")
    assert not re.search(r"[\u4e00-\u9fff]", without[0]), "Chinese on an English page"


@pytest.mark.parametrize("module", ["reference_pages", "chinese_pages"])
def test_pages_made_from_the_code_are_up_to_date(module: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(DOCS))
    made = importlib.import_module(module).pages()
    stale = [str(path) for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    sys.modules.pop(module)
    assert stale == [], "run `make docs`"


def test_errors_that_are_explained_exist():
    texts = [
        code.splitlines()[0].removeprefix("error: ")
        for info, code in blocks(page("en", "reference/troubleshooting.md"))
        if info == "text" and code.startswith("error: ")
    ]
    source = "".join(path.read_text() for path in (ROOT / "src" / "stepscope").rglob("*.py"))
    assert len(texts) >= 12
    assert [text for text in texts if text not in source] == []


def test_the_tutorial_holds_the_script_of_the_demo():
    script = (ROOT / "examples" / "slow_loader.py").read_text()
    assert ("python", script) in blocks(page("en", "tutorial/first-ten-minutes.md"))


def to_run() -> list[pytest.param]:
    return [
        pytest.param(info.split()[0], code, id=f"{name}-{number}")
        for name in PAGES
        for number, (info, code) in enumerate(blocks(page("en", name)))
        if info.split()[1:] == ["run"]
    ]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with `demo-run`, as the tutorial records it, and what `make demo` said about it."""
    reason = reason_without_device()
    if reason:
        pytest.skip(f"no simulated NPU: {reason}")
    folder = tmp_path_factory.mktemp("tutorial")
    environment = {
        **os.environ,
        "DEMO_RUN": str(folder / "demo-run"),
        "STEPSCOPE_MIN_FREE_BYTES": "0",
        "LANG": "en_US.UTF-8",
        "COLUMNS": "200",
    }
    environment.pop("LC_ALL", None)
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--no-browser"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


@pytest.mark.slow  # trains on two simulated NPUs
def test_the_demo_finds_predicts_and_confirms(demo):
    folder, said = demo
    assert "Communication waits for rank 1 of its group" in said
    assert "The training loop waits for data (rank 1" in said
    ranks = analyse_run(load([folder / "demo-run" / "before"], options=Options(cache=False)))
    named = next((one for one in ranks.findings if one.victims), None)
    if named is None:  # this machine is so busy that steps vary too much: the demo shows what the analysis says of it
        assert lines(ranks, "en")[0] in said
    else:
        assert re.search(rf"Rank {1 - named.ranks[0]} waits [\d.]+ ms a step for rank {named.ranks[0]}: ", said)
    assert re.search(r"Prediction: .* rank 1 saves [\d.]+ ms", said)
    # Samples of rank 1 sleep for 32 ms a step; how much shorter a step became depends on how busy this machine is.
    waits = []
    for side in ("before", "after"):
        found = verdict([capture.tables for capture in open_all(folder / "demo-run" / side)])
        waits.append(max(rank.partition.get("idle.data", 0.0) for rank in found.ranks))
    assert waits[0] > 20e6
    assert waits[1] < waits[0] / 2


@pytest.mark.slow  # shares the demo
@pytest.mark.parametrize(("language", "code"), to_run())
def test_what_the_documents_show_runs(
    demo, language: str, code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder, _ = demo
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    if language == "python":
        exec(compile(code, "<document>", "exec"), {"__name__": "__main__"})
        return
    for line in code.splitlines():
        words = shlex.split(line.removeprefix("$ "))
        assert words[0] == "stepscope", line
        for flag in ("--out", "-o"):  # shown on several pages
            if flag in words and (target := Path(words[words.index(flag) + 1])).exists() and words[1] in ("slice", "unpack"):
                words[words.index(flag) + 1] = f"{target}-{len(os.listdir('.'))}"
        assert main(words[1:]) == 0, f"{line}\n{capsys.readouterr().err}"
        assert capsys.readouterr().out


@pytest.mark.slow  # builds the site
def test_the_site_builds_offline_without_a_warning(tmp_path: Path):
    """All of it is read and its links resolved; the theme writes all pages, which takes as long again, or one of our settings."""
    given = os.environ.get("STEPSCOPE_DOCS_PYTHON")
    python = Path(given) if given else ROOT / ".venv-docs" / "bin" / "python"
    if not python.is_file():
        pytest.skip("no environment with Sphinx: `make test` builds .venv-docs")

    def build(builder: str, source: Path) -> None:
        command = [str(python), "-m", "sphinx", "-q", "-W", "--keep-going", "-c", str(DOCS), "-b", builder]
        done = subprocess.run(
            [*command, "-d", str(tmp_path / f"trees of {builder}"), str(source), str(tmp_path / "site")],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]

    if THOROUGH:
        build("html", DOCS)
    else:
        build("dummy", DOCS)
        (tmp_path / "one").mkdir()
        (tmp_path / "one" / "index.md").write_text("# One page\n\n```python\nimport stepscope\n```\n")
        build("html", tmp_path / "one")
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > (2 * len(PAGES) if THOROUGH else 1)
    for path in pages:
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']((?:https?:)?//[^"']+)""", text)
        assert [address for address in loaded if "canonical" not in address] == [], path

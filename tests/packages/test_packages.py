"""What is in the packages, that a second build gives the same bytes, and that the workflows are well formed."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from thorough import THOROUGH

ROOT = Path(__file__).resolve().parents[2]
ALONE = ("README.md", "LICENSE", "CHANGELOG.md", "Makefile", "pyproject.toml")
PARTS = ("src/", "native/", "packaging/", "tests/", "web/")
SCRIPT = """
import hashlib, json, sys, tarfile, zipfile
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
def build(kind, folder):
    return next(iter(kind(".").build(directory=folder, versions=["standard"])))
built = {}
for name, kind in (("sdist", SdistBuilder), ("wheel", WheelBuilder)):
    files = [build(kind, f"{sys.argv[1]}/{number}") for number in (1, 2)]
    sums = [hashlib.sha256(open(file, "rb").read()).hexdigest() for file in files]
    if name == "sdist":
        with tarfile.open(files[0]) as archive:
            members = [member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()]
            text = archive.extractfile(next(m for m in archive.getmembers() if m.name.endswith("PKG-INFO"))).read().decode()
    else:
        with zipfile.ZipFile(files[0]) as archive:
            members = archive.namelist()
    built[name] = {"file": files[0], "sums": sums, "members": members}
built["metadata"] = text
print(json.dumps(built))
"""


def tools() -> Path:
    """The environment with the tools, where it was set up."""
    given = os.environ.get("STEPSCOPE_DOCS_PYTHON")
    python = Path(given) if given else ROOT / ".venv-docs" / "bin" / "python"
    if not python.is_file():
        pytest.skip("no environment with build tools: `make test` builds .venv-docs")
    return python.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    environment = {**os.environ, "GITHUB_SERVER_URL": "https://example.org", "GITHUB_REPOSITORY": "some/where"}
    command = [str(tools() / "python"), "-c", SCRIPT, str(tmp_path_factory.mktemp("dist"))]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def tracked() -> set[str]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a repository")
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


@pytest.mark.slow  # builds four packages
def test_a_second_build_gives_the_same_bytes(built):
    for kind in ("sdist", "wheel"):
        assert len(set(built[kind]["sums"])) == 1, kind
    assert built["wheel"]["file"].endswith("-py3-none-any.whl")


@pytest.mark.slow  # shares the packages
def test_the_source_package_holds_the_files_of_the_repository_and_no_others(built):
    files = tracked()
    expected = {name for name in files if name.startswith(PARTS)} | {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "Makefile",
        "pyproject.toml",
    }
    members = set(built["sdist"]["members"]) - {"PKG-INFO", ".gitignore"}
    assert members - files == set()  # nothing stray
    assert expected - members == set()
    assert members - expected == set()


@pytest.mark.slow  # shares the packages
def test_the_wheel_holds_types_sources_and_page(built):
    members = set(built["wheel"]["members"])
    assert {"stepscope/py.typed", "stepscope/web/static/index.html", "stepscope_searched_last.pth"} <= members
    assert any(name.startswith("stepscope/native/source/observer/") for name in members)
    assert not any("__pycache__" in name or name.startswith(("tests/", "docs/")) for name in members)


@pytest.mark.slow  # shares the packages
def test_the_metadata_names_the_repository_that_built_it(built):
    text = built["metadata"]
    assert "Project-URL: Source, https://example.org/some/where" in text
    assert "Classifier: Typing :: Typed" in text
    assert "](docs/" not in text
    assert "https://example.org/some/where/blob/main/docs/" in text


@pytest.mark.slow  # a process for each tool
def test_workflows_are_well_formed():
    folder = tools()
    files = sorted(map(str, (ROOT / ".github" / "workflows").glob("*.yml")))
    assert len(files) >= 3
    checker = folder / "check-jsonschema"
    if not checker.is_file():
        pytest.skip("check-jsonschema is not installed")
    done = subprocess.run(
        [str(checker), "--builtin-schema", "vendor.github-workflows", *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    linter = folder / "zizmor"
    if linter.is_file():
        command = [str(linter), "--offline", "--quiet", "--min-severity", "medium", "--config", ".github/zizmor.yml", *files]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow  # compiles the kernels for two kinds of machines
@pytest.mark.skipif(not THOROUGH, reason="zig compiles its C++ library for each kind of machine, a minute: make soak")
def test_portable_wheels_run_on_old_systems(tmp_path: Path):
    python = tools() / "python"
    if subprocess.run([python, "-c", "import ziglang, auditwheel"], capture_output=True, check=False).returncode:
        pytest.skip("no ziglang and auditwheel: `make test` puts them into .venv-docs")
    # zig compiles its C++ library for each kind of machine: half a minute.
    machines = ["aarch64", "x86_64"] if THOROUGH else [platform.machine()]
    script = ROOT / "packaging" / "portable_wheels.sh"
    done = subprocess.run(
        [script, tmp_path, *machines], env={**os.environ, "PYTHON": str(python)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    wheels = sorted(tmp_path.glob("*.whl"))
    assert [wheel.name.rpartition("-")[2] for wheel in wheels] == [f"manylinux_2_28_{name}.whl" for name in machines]
    for wheel in wheels:
        machine = wheel.stem.partition("2_28_")[2]
        shown = subprocess.run([python, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=True).stdout
        oldest = re.search(rf"manylinux_2_(\d+)_{machine}", " ".join(shown.split()))
        assert oldest is not None, shown
        assert int(oldest[1]) <= 28
        with zipfile.ZipFile(wheel) as archive:
            (library,) = (name for name in archive.namelist() if "/prebuilt/" in name)
            assert machine in library
            archive.extractall(tmp_path / machine)
    run = subprocess.run(
        [sys.executable, "-c", "from stepscope.native.codec import describe_codec; print(describe_codec())"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / platform.machine())},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "C++ kernels (prebuilt)\n"


_NEWER = r"GLIBC_2\.(29|3\d)|GLIBCXX_3\.4\.(2[5-9]|3\d)|CXXABI_1\.3\.1[2-9]"
THREADS = """
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
using namespace std::chrono_literals;
extern "C" __attribute__((visibility("default"))) int wait(std::shared_ptr<std::string> *text) {
  static std::timed_mutex timed;
  static std::mutex mutex;
  static std::condition_variable changed;
  std::unique_lock<std::mutex> lock(mutex);
  std::shared_ptr<std::string> copy = *text;
  if (copy->empty()) changed.wait(lock);
  return timed.try_lock_for(1ms) + (changed.wait_for(lock, 1ms) == std::cv_status::timeout);
}
"""


@pytest.mark.slow  # compiles
def test_libraries_that_load_torch_are_compiled_for_old_systems(tmp_path: Path):
    python = tools() / "python"
    if subprocess.run([python, "-c", "import ziglang"], capture_output=True, check=False).returncode:
        pytest.skip("no ziglang: `make test` puts it into .venv-docs")
    if not shutil.which("g++") or not shutil.which("objdump") or platform.machine() != "x86_64":
        pytest.skip("needs g++ and objdump on x86_64")
    source, library = tmp_path / "threads.cpp", tmp_path / "threads.so"
    source.write_text(THREADS)
    command = [ROOT / "packaging" / "portable" / "cxx", "-std=c++20", "-O2", "-fPIC", "-shared", source, "-o", library]
    done = subprocess.run(command, env={**os.environ, "PORTABLE_PYTHON": str(python)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    symbols = subprocess.run(["objdump", "-T", library], capture_output=True, text=True, check=True).stdout
    assert "GLIBCXX_3.4.11" in symbols  # libstdc++, as torch has it
    assert [line for line in symbols.splitlines() if re.search(_NEWER, line)] == []

# SPDX-License-Identifier: Apache-2.0
"""A real Chromium, the viewer's server, and captures to open in it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from viewer.page import Page, TabPage, absent, chromium, serving
from viewer.timeline import odd_trace
from viewer.tiny_trace import write_trace

from stepscope.cli import main


@pytest.fixture(scope="session")
def driver() -> Iterator[object]:
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        absent("Debian's chromium with chromium-driver")
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepared captures go below the tests' folder, never beside the user's; compiled libraries of other tests do not."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture(scope="session")
def samples(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real captures, laid out as users lay them out: run / worker / files."""
    folder = tmp_path_factory.mktemp("samples")
    for level in ("level0", "level2"):
        shutil.copytree(golden / "ascend_pt" / "text" / level, folder / f"npu_{level}", copy_function=shutil.copyfile)
    (folder / "gpu").mkdir()
    for name in ("gpu_nccl", "gpu_train_control"):
        shutil.copyfile(golden / "kineto" / f"{name}.pt.trace.json.gz", folder / "gpu" / f"{name}.pt.trace.json.gz")
    (folder / "odd").mkdir()
    (folder / "odd" / "w.pt.trace.json").write_text(json.dumps(odd_trace()))
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture(scope="session")
def sample_page(driver: object, samples: Path) -> Iterator[Page]:
    with serving(samples) as address:
        yield Page(driver, address)


@pytest.fixture(scope="session")
def tensorboard(samples: Path, cache: Path) -> Iterator[str]:
    """Address of a TensorBoard that shows the real captures, below a path prefix."""
    if importlib.util.find_spec("tensorboard") is None:
        absent("tensorboard")
    if "stepscope" not in {point.name for point in importlib.metadata.entry_points(group="tensorboard_plugins")}:
        absent("stepscope's entry point for TensorBoard (install the package again)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(samples), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--path_prefix", "/below/here"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}/below/here/"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}data/plugin/stepscope/index.js").close()
                break
            except (urllib.error.URLError, ConnectionError):
                assert process.poll() is None, "TensorBoard did not start"
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(params=["own", "tensorboard"])
def door_page(request: pytest.FixtureRequest, driver: Any) -> Iterator[Page]:
    """The real captures behind each of the two doors: the page's own server, and TensorBoard."""
    if request.param == "own":
        yield request.getfixturevalue("sample_page")
    else:
        yield TabPage(driver, request.getfixturevalue("tensorboard"))
        driver.switch_to.default_content()


@pytest.fixture(scope="session")
def tiny_page(driver: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A capture made by hand, so that the page is tested where the real ones are absent."""
    folder = tmp_path_factory.mktemp("tiny")
    write_trace(folder / "run" / "worker0.pt.trace.json")
    with serving(folder) as address:
        yield Page(driver, address)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of ours, analysed: it has stacks, operation counts and memory."""
    folder = tmp_path_factory.mktemp("recorded")
    with tarfile.open(Path(__file__).resolve().parents[1] / "captures" / "npu-level1.tar.xz") as packed:
        packed.extractall(folder / "run", filter="data")
    (capture,) = (folder / "run").iterdir()
    assert main(["analyse", str(capture)]) == 0
    return folder


@pytest.fixture
def size(request: pytest.FixtureRequest, driver: Any) -> Iterator[tuple[int, int]]:
    """The page itself has this size, whatever the browser puts around it."""
    width, height = request.param
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    yield width, height
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

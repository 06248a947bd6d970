# SPDX-License-Identifier: Apache-2.0
"""A real Chromium, the viewer's server, and captures to open in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from viewer.page import Page, absent, chromium, serving
from viewer.timeline import odd_trace
from viewer.tiny_trace import write_trace


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
def tiny_page(driver: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A capture made by hand, so that the page is tested where the real ones are absent."""
    folder = tmp_path_factory.mktemp("tiny")
    write_trace(folder / "run" / "worker0.pt.trace.json")
    with serving(folder) as address:
        yield Page(driver, address)


@pytest.fixture
def size(request: pytest.FixtureRequest, driver: Any) -> Iterator[tuple[int, int]]:
    """The page itself has this size, whatever the browser puts around it."""
    width, height = request.param
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    yield width, height
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

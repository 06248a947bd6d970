# SPDX-License-Identifier: Apache-2.0
"""The other door: the same page as a tab of TensorBoard, below a path prefix."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from viewer.page import Page, absent
from viewer.timeline import Landing

pytestmark = pytest.mark.slow  # a real browser and a real TensorBoard

READY = "return !!document.querySelector('[data-testid=\"view-{view}\"][data-ready=true]')"


@pytest.fixture(scope="module")
def tensorboard(samples: Path) -> Iterator[str]:
    if importlib.util.find_spec("tensorboard") is None:
        absent("tensorboard")
    if "stepscope" not in {point.name for point in importlib.metadata.entry_points(group="tensorboard_plugins")}:
        absent("stepscope's entry point for TensorBoard (install the package again)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(samples), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--path_prefix", "/below/here"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)
    )
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


def opened(driver: Any, address: str, state: str, view: str) -> Page:
    """TensorBoard with our tab, the driver inside the tab's frame."""
    from selenium.webdriver.common.by import By

    page = Page(driver, address)
    page.leave()
    driver.get(f"{address}#stepscope&p.stepscope.s={quote(state, safe='')}")
    page.until("return !!document.querySelector('iframe')", "TensorBoard's frame for the tab")
    driver.switch_to.frame(driver.find_element(By.CSS_SELECTOR, "iframe"))
    page.until(READY.replace("{view}", view), f"view {view}", 60)
    return page


@pytest.fixture
def back(driver: Any) -> Iterator[None]:
    yield
    driver.switch_to.default_content()


@pytest.mark.usefixtures("back")
def test_same_numbers_as_the_page_of_its_own(driver: Any, tensorboard: str, sample_page: Page) -> None:
    keys = ["name", "calls", "device_self", "host_self"]
    sample_page.open("operator", run="npu_level2", worker="0")
    wanted = sample_page.rows("operators", keys)
    page = opened(driver, tensorboard, "/operator?run=npu_level2&worker=0", "operator")
    assert page.rows("operators", keys)[:10] == wanted[:10]
    assert [line for line in page.errors() if "/data/plugin/stepscope/" in line] == []
    assert page.foreign_requests() == []


@pytest.mark.usefixtures("back")
@pytest.mark.parametrize(
    ("capture", "views"), [("run=npu_level2&worker=0", 14), ("run=gpu&worker=gpu_nccl", 10)], ids=["npu", "gpu"]
)
def test_every_view_is_clean_here_too(capture: str, views: int, driver: Any, tensorboard: str) -> None:
    page = opened(driver, tensorboard, f"/overview?{capture}", "overview")
    assert len(page.views()) == views
    assert [flaw for flaw in page.flaws(also_dark=False) if "/data/plugin/stepscope/" in flaw or "http" not in flaw] == []
    assert page.foreign_requests() == []


@pytest.mark.usefixtures("back")
def test_state_stands_in_the_address_of_tensorboard(driver: Any, tensorboard: str) -> None:
    page = opened(driver, tensorboard, "/operator?run=npu_level2", "operator")
    page.choose("select-views", "kernel")
    page.until(READY.replace("{view}", "kernel"), "view kernel")
    assert "p.stepscope.s=%2Fkernel" in driver.execute_script("return window.parent.location.hash")


@pytest.mark.usefixtures("back")
def test_theme_follows_tensorboard(driver: Any, tensorboard: str) -> None:
    page = opened(driver, tensorboard, "/operator?run=npu_level2", "operator")
    shown = "return document.querySelector('.stepscope').dataset.theme === '{theme}'"
    driver.execute_script("window.parent.document.body.classList.add('dark-mode')")
    page.until(shown.replace("{theme}", "dark"), "dark")
    driver.execute_script("window.parent.document.body.classList.remove('dark-mode')")
    page.until(shown.replace("{theme}", "light"), "light")


@pytest.mark.usefixtures("back", "size")
@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)], ids=["1280x720", "1920x1080"], indirect=True)
def test_a_kernel_row_leads_to_its_slice_here_too(driver: Any, tensorboard: str) -> None:
    page = opened(driver, tensorboard, "/kernel?run=npu_level2&worker=0&group=all", "kernel")
    row = '[data-testid^="table-kernels"] .table-layer > .table-row'
    page.until(f"return document.querySelectorAll('{row}').length > 3", "rows")
    driver.execute_script(f"document.querySelectorAll('{row}')[3].querySelector('[data-testid=show-in-trace]').click()")
    Landing(page).lands()


@pytest.mark.usefixtures("back", "size")
@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)], ids=["1280x720", "1920x1080"], indirect=True)
def test_a_finding_leads_to_its_evidence_and_the_link_opens_again_here_too(driver: Any, tensorboard: str) -> None:
    page = opened(driver, tensorboard, "/verdict?run=npu_level2&worker=0", "verdict")
    page.click("[data-rule=peer-wait] [data-testid=evidence]")
    landing = Landing(page)
    landing.lands()
    hash_of = "return window.parent.location.hash"
    here = "t%3D" + "_".join(str(round(end)) for end in landing.stats["window"])
    landing.until(lambda: "slice%3D" in driver.execute_script(hash_of) and here in driver.execute_script(hash_of))
    stats, link = landing.stats, driver.execute_script("return window.parent.location.href")
    driver.switch_to.default_content()
    driver.get("about:blank")
    driver.get(link)
    page.until("return !!document.querySelector('iframe')", "TensorBoard's frame for the tab")
    driver.switch_to.frame(driver.find_element("css selector", "iframe"))
    page.until(READY.replace("{view}", "trace"), "view trace", 60)
    again = Landing(page)
    again.lands()
    assert again.stats["selected"] == stats["selected"]
    assert again.stats["window"] == pytest.approx(stats["window"], abs=1)
    assert again.stats["canvas"]["scroll"] == pytest.approx(stats["canvas"]["scroll"], abs=1)


@pytest.mark.usefixtures("back")
def test_all_findings_land_here_too(driver: Any, tensorboard: str) -> None:
    page = opened(driver, tensorboard, "/findings?run=npu_level2&worker=0", "findings")
    count = driver.execute_script("return document.querySelectorAll('.finding').length")
    landed = 0
    for at in range(count):
        if at:
            page.choose("select-views", "findings")
            page.until(READY.replace("{view}", "findings"), "findings")
        driver.execute_script(
            "document.querySelectorAll('.finding')[arguments[0]].querySelector('[data-testid=evidence], button.link').click()", at
        )
        if "trace%3F" in driver.execute_script("return window.parent.location.hash"):
            Landing(page).lands()
            landed += 1
    assert landed

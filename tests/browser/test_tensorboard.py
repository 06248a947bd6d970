# SPDX-License-Identifier: Apache-2.0
"""The other door: the same page as a tab of TensorBoard, below a path prefix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from viewer.page import Page, TabPage
from viewer.timeline import Landing

pytestmark = pytest.mark.slow  # a real browser and a real TensorBoard

READY = "return !!document.querySelector('[data-testid=\"view-{view}\"][data-ready=true]')"


def opened(driver: Any, address: str, state: str, view: str) -> TabPage:
    """TensorBoard with our tab, the driver inside the tab's frame."""
    page = TabPage(driver, address)
    page.leave()
    page.enter(state)
    page.ready(view)
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
    assert page.errors() == []
    assert page.foreign_requests() == []


@pytest.mark.usefixtures("back")
@pytest.mark.parametrize(
    ("capture", "views"), [("run=npu_level2&worker=0", 14), ("run=gpu&worker=gpu_nccl", 10)], ids=["npu", "gpu"]
)
def test_every_view_is_clean_here_too(capture: str, views: int, driver: Any, tensorboard: str) -> None:
    page = opened(driver, tensorboard, f"/overview?{capture}", "overview")
    assert len(page.views()) == views
    assert page.flaws(also_dark=False) == []
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
def test_a_finding_leads_to_its_evidence_and_the_link_opens_again_here_too(driver: Any, tensorboard: str) -> None:
    page = opened(driver, tensorboard, "/verdict?run=npu_level2&worker=0", "verdict")
    page.click("[data-rule=peer-wait] [data-testid=evidence]")
    landing = Landing(page)
    landing.lands()
    hash_of = "return window.parent.location.hash"
    here = "t%3D" + "_".join(str(round(end)) for end in landing.stats["window"])
    landing.until(lambda: "slice%3D" in driver.execute_script(hash_of) and here in driver.execute_script(hash_of))
    stats, link = landing.stats, driver.execute_script("return window.parent.location.href")
    page.enter_again(link)
    page.ready("trace")
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

# SPDX-License-Identifier: Apache-2.0
"""The viewer's page in a browser that tests drive."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import pytest

AXE = Path(__file__).resolve().parents[3] / "web" / "node_modules" / "axe-core" / "axe.min.js"

# As root, without a network: no sandbox, and none of the browser's own errands.
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--lang=en-US", "--window-size=1600,1000",
    "--force-device-scale-factor=1",
)  # fmt: skip


def absent(what: str) -> None:
    """Tests of the page must run in CI; on a desk without the tool they say what is missing."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is not installed, and CI must run the browser tests (make test installs it where allowed)")
    pytest.skip(f"{what} is not installed")


@contextmanager
def chromium() -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options.add_argument(f"--user-data-dir={profile}")
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
        try:
            yield driver
        finally:
            driver.quit()


@contextmanager
def serving(*folders: Path, settings: Any = None) -> Iterator[str]:
    """Address of a running viewer."""
    from stepscope.web.request import Settings
    from stepscope.web.server import Address, Server

    server = Server(folders, Address(), settings or Settings())
    Thread(target=server.run, daemon=True).start()
    try:
        yield server.url
    finally:
        server.close()


class Page:
    """The page at one address, with what it logged and asked for since it was opened."""

    def __init__(self, driver: Any, address: str):
        self.driver, self.address = driver, address

    def open(self, view: str, wait: float = 60, **parameters: str) -> None:
        """Load a view from nothing and wait until it shows its data."""
        self.leave()
        self.enter(f"/{view}?{urlencode(parameters)}")
        self.ready(view, wait)

    def enter(self, state: str) -> None:
        """Open the page with that view and those parameters."""
        self.driver.get(f"{self.address}#{state}")

    def enter_again(self, link: str) -> None:
        """Open a link that the page gave."""
        self.driver.get("about:blank")
        self.driver.get(link)

    @property
    def state(self) -> str:
        """View and parameters, as they stand in the address."""
        return urlsplit(self.driver.current_url).fragment

    def leave(self, width: int = 1600, height: int = 1000) -> None:
        """An empty page in a window of that size; what the page kept in the browser and what was logged is gone."""
        self.driver.switch_to.default_content()
        self.driver.get("about:blank")
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(self.address))
        self.driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "local_storage"})
        if self.driver.get_window_size() != {"width": width, "height": height}:
            self.driver.set_window_size(width, height)
        self.driver.get_log("browser")
        self.driver.get_log("performance")

    def ready(self, view: str, wait: float = 60) -> None:
        self.until(f"return !!document.querySelector('[data-testid=\"view-{view}\"][data-ready=true]')", f"view {view}", wait)

    def views(self) -> list[str]:
        """The views that the control panel offers."""
        return self.driver.execute_script(
            "return [...document.querySelectorAll('[data-testid=select-views] option')].map(one => one.value)"
        )

    def flaws(self, *, also_dark: bool = True) -> list[str]:
        """What is wrong with every view of the capture that is open: errors, accessibility, contrast in both themes.

        Walks through the views as a reader does, so the page is loaded once.
        """
        if not AXE.exists():
            absent("axe-core (make web)")
        self.driver.execute_script(AXE.read_text())
        found = []
        for view in [*self.views(), "diff"]:
            if view == "diff":
                self.click("[data-testid=tab-diff]")
            else:
                self.choose("select-views", view)
            self.ready(view)
            found += [f"{view}: {flaw}" for flaw in self.accessibility()]
            if also_dark:
                for theme in ("dark", "light"):
                    self.choose("select-theme", theme)
                    self.until(f"return document.querySelector('.stepscope').dataset.theme === '{theme}'", theme)
                    if theme == "dark":
                        found += [f"{view}, dark: {flaw}" for flaw in self.accessibility("color-contrast")]
            found += [f"{view}: {error}" for error in self.errors()]
        return found

    def until(self, script: str, what: str, wait: float = 30) -> Any:
        from selenium.common.exceptions import TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait

        try:
            return WebDriverWait(self.driver, wait, poll_frequency=0.05).until(lambda driver: driver.execute_script(script))
        except TimeoutException:
            shown = self.driver.execute_script("return document.body.innerText")
            raise AssertionError(f"{what} did not come; the page says: {shown[:600]!r}; log: {self.errors()}") from None

    @contextmanager
    def holding(self, route: str) -> Iterator[Callable[[], None]]:
        """Pages opened meanwhile get no answer of this route before the function is called."""
        hold = """
          const real = window.fetch, told = new Promise((tell) => (window.letGo = tell));
          window.fetch = async (url, options) => {
            if (String(url).includes('/v1/%s?')) await told;
            return real(url, options);
          };
        """
        added = self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": hold % route})
        try:
            yield lambda: self.driver.execute_script("window.letGo()")
        finally:
            self.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def foreign_requests(self) -> list[str]:
        """Addresses asked for that are neither the server's nor inside the page itself."""
        own = urlsplit(self.address).netloc
        asked = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                asked.append(message["params"]["request"]["url"])
        local = ("data", "blob", "about", "chrome", "chrome-extension")
        return [url for url in asked if urlsplit(url).scheme not in local and urlsplit(url).netloc != own]

    def click(self, selector: str) -> None:
        self.driver.execute_script("document.querySelector(arguments[0]).click()", selector)

    def choose(self, hook: str, value: str) -> None:
        """Pick an entry of a select box."""
        self.driver.execute_script(
            "const box = document.querySelector(`[data-testid='${arguments[0]}']`); box.value = arguments[1];"
            "box.dispatchEvent(new Event('change', {bubbles: true}))",
            hook,
            value,
        )

    def rows(self, table: str, keys: Sequence[str]) -> list[list[str]]:
        """Cells of the rows in view."""
        script = """
          const rows = document.querySelectorAll(`[data-testid="table-${arguments[0]}"] .table-layer > .table-row`);
          return [...rows].map(row => arguments[1].map(key => row.querySelector(`[data-key="${key}"]`)?.textContent ?? null));
        """
        return self.driver.execute_script(script, table, list(keys))

    def headings(self, table: str) -> list[str]:
        script = """
          const heads = document.querySelectorAll(`[data-testid='table-${arguments[0]}'] [role=columnheader]`);
          return [...heads].map(one => one.innerText.trim().replace(/\\s+/g, ' '));
        """
        return self.driver.execute_script(script, table)

    def keys(self, table: str) -> list[str]:
        """Keys of the columns, as they stand."""
        script = """
          const heads = document.querySelectorAll(`[data-testid='table-${arguments[0]}'] [role=columnheader]`);
          return [...heads].map(one => one.dataset.testid.slice(4));
        """
        return self.driver.execute_script(script, table)

    def pie(self, key: str) -> dict[str, float]:
        """Entries of a pie in their order, with the full value."""
        script = """
          return [...document.querySelectorAll(`[data-testid="pie-${arguments[0]}"] .legend li`)].map(
            one => [one.querySelector('.legend-name').textContent, Number(one.querySelector('.legend-share').dataset.value)]);
        """
        return dict(self.driver.execute_script(script, key))

    def text(self, selector: str) -> str:
        return self.driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def accessibility(self, *rules: str) -> list[str]:
        """What axe finds wrong, one line per rule; it must be in the page."""
        script = """
          const done = arguments[arguments.length - 1];
          const told = one => `${one.id}: ${one.nodes.map(node => node.html.slice(0, 120)).join(' | ')}`;
          const options = {resultTypes: ['violations'], ...(arguments[0].length ? {runOnly: arguments[0]} : {})};
          axe.run(document, options).then(found => done(found.violations.map(told)));
        """
        return self.driver.execute_async_script(script, list(rules))


class TabPage(Page):
    """The same page as a tab of TensorBoard: the driver is inside the tab's frame, the address is TensorBoard's."""

    def enter(self, state: str) -> None:
        self.driver.get(f"{self.address}#stepscope&p.stepscope.s={quote(state, safe='')}")
        self._into_the_frame()

    def enter_again(self, link: str) -> None:
        self.driver.switch_to.default_content()
        super().enter_again(link)
        self._into_the_frame()

    def _into_the_frame(self) -> None:
        self.until("return !!document.querySelector('iframe')", "TensorBoard's frame for the tab")
        self.driver.switch_to.frame(self.driver.find_element("css selector", "iframe"))

    @property
    def state(self) -> str:
        (own,) = (part for part in super().state.split("&") if part.startswith("p.stepscope.s="))
        return unquote(own.partition("=")[2])

    def errors(self) -> list[str]:
        """Those of our page; TensorBoard's own logs some."""
        return [line for line in super().errors() if "/data/plugin/stepscope/" in line]

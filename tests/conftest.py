"""Shared fixtures: where the real captures are, and small builders of tables."""

from __future__ import annotations

import gc
import os
import re
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest
from profiler_doubles import NotingTier
from shared_data import GOLDEN, PLACES, SEEDS

# How long an example takes says nothing on a shared machine.
hypothesis.settings.register_profile("no-deadline", deadline=None)
hypothesis.settings.load_profile("no-deadline")
# For `make quick`; `make test` tries as many examples as each test asks for.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=15)

UNIT = Path(__file__).parent / "unit"
SITE = Path(__file__).parent / "support" / "site"  # what interpreters that tests start do first
BROWSER = "tests/browser"
IMPORTS_TORCH = re.compile(r'^(import torch|from torch|torch = pytest\.importorskip)\b|^pytest\.importorskip\("torch"', re.M)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests run in one process, and so do all of the page: one browser, and each capture in it prepared once."""
    from xdist.scheduler import LoadFileScheduling

    if config.getoption("dist") != "loadfile":
        return None
    scheduling = LoadFileScheduling(config, log)
    of_file = scheduling._split_scope
    scheduling._split_scope = lambda nodeid: BROWSER if nodeid.startswith(f"{BROWSER}/") else of_file(nodeid)
    return scheduling


class WithoutData(pytest.Directory):
    """A folder of tests whose data are absent."""

    def collect(self) -> NoReturn:
        (place,) = (place for place in PLACES if place.name == self.path.name)
        raise self.CollectError(f"with CI set these tests must run, but there are {place.absence}")


def pytest_configure(config: pytest.Config) -> None:
    """A cache of its own: what an earlier program made of a capture must not be taken for what this one makes. Libraries stay.

    Processes that run tests side by side start one thread of the columnar engine each, and none for algebra, which would spin.
    """
    side_by_side = bool(config.getoption("numprocesses", None))
    if not side_by_side:  # only what tests start: some tests compile
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")]))
    if hasattr(config, "workerinput"):  # of pytest-xdist, which has the variables of the first process
        if os.environ.get("POLARS_MAX_THREADS") == "1":
            import polars  # noqa: F401 - its threads start now

            del os.environ["POLARS_MAX_THREADS"]  # processes that tests start decide for themselves
        return
    if side_by_side:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")  # the others have the other cores
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepscope" / "native"
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = tempfile.TemporaryDirectory(prefix="stepscope-test-cache-")
    config.add_cleanup(folder.cleanup)
    (Path(folder.name) / "stepscope").mkdir(mode=0o700)
    (Path(folder.name) / "stepscope" / "native").symlink_to(kept)
    os.environ["XDG_CACHE_HOME"] = folder.name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-torch", action="store_true", help="leave out the files that import torch")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """For `make quick`: torch takes as long to import as hundreds of tests take to run."""
    if not config.getoption("--without-torch") or collection_path.suffix != ".py":
        return None
    return IMPORTS_TORCH.search(collection_path.read_text(encoding="utf-8")) is not None or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Measure coverage on the fast unit tests alone: the tracer costs them half their time, and other tests start processes.

    Property tests run the same lines a hundred times.
    """
    if config.pluginmanager.hasplugin("_cov"):
        for item in items:
            properties = hypothesis.is_hypothesis_test(getattr(item, "obj", None))
            if UNIT not in item.path.parents or item.get_closest_marker("slow") or properties:
                item.add_marker("no_cover")
    # Files are handed out in this order: the long ones first, many short ones to fill the end.
    items.sort(key=lambda item: UNIT in item.path.parents)


def pytest_collection_finish() -> None:
    """What collection made lives to the end: tests that ask for a garbage collection need not look through it again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """So does what is left at the end of a file: parsed sources and modules of torch made later collections ten times slower."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Directory | None:
    """Where everything is to be tested, absent data is an error; skipped tests would look like passed ones."""
    absent = {Path(__file__).parent / place.name for place in PLACES if place.find() is None}
    return WithoutData.from_parent(parent, path=path) if path in absent and os.environ.get("CI") else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    counts = {place: sum(place.absence in reason for reason in reasons) for place in PLACES}
    parts = [f"{count} need {place.holds} ({place.variable})" for place, count in counts.items() if count]
    if parts:
        line = f"{sum(counts.values())} tests were skipped: {', '.join(parts)}; CONTRIBUTING.md says how to get them"
        terminalreporter.write_line(line, yellow=True)


@pytest.fixture(scope="session")
def golden() -> Path:
    return GOLDEN.folder()


@pytest.fixture(scope="session")
def seeds() -> Path:
    return SEEDS.folder()


@pytest.fixture(scope="session")
def kernels() -> None:
    """The C++ kernels, built unless they are there."""
    from stepscope.native import codec

    reason = codec.build()
    codec._find.cache_clear()
    if reason and os.environ.get("CI"):
        pytest.fail(f"with CI set these tests must run, but the kernels were not built: {reason}")
    if reason:
        pytest.skip(reason)


@pytest.fixture(params=["kernels", "polars"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs twice: with the C++ kernels and without."""
    if request.param == "polars":
        monkeypatch.setenv("STEPSCOPE_KERNELS", "0")
    else:
        monkeypatch.delenv("STEPSCOPE_KERNELS", raising=False)
        request.getfixturevalue("kernels")
    return str(request.param)


@pytest.fixture
def noting_tier(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Calls of the tier that records for every profiler of the test; captures go below tmp_path."""
    from stepscope.collect import active, messages
    from stepscope.collect.tiers import choice as tiers

    calls: list[str] = []
    monkeypatch.setattr(tiers, "choose", lambda settings: NotingTier(calls))
    monkeypatch.setattr(messages, "_printed", set())
    monkeypatch.setattr(active, "_running", None)
    for name in ("RANK", "ASCEND_WORK_PATH", "TORCH_NPU_WARNING_DISABLE", "PROFILING_MODE", "STEPSCOPE_SPOOL_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STEPSCOPE_MIN_FREE_BYTES", "0")
    monkeypatch.chdir(tmp_path)
    return calls

# SPDX-License-Identifier: Apache-2.0
"""Record steps of a running job: it watches profiler_config.json and records what that requests.

from stepscope import dynamic_profile as dp

dp.init("folder")             # profiler_config.json appears there; edit it, or use `stepscope ctl folder start`
for batch in batches:
    train(batch)
    dp.step()

With PROF_CONFIG_PATH in the environment neither call is needed: the optimizer's steps are counted.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
from pathlib import Path
from typing import Any

import stepscope
from stepscope.collect import messages
from stepscope.collect.guard import quietly, warn_on_failure
from stepscope.dynamic_profile import optimizer_steps
from stepscope.dynamic_profile.session import Session

__all__ = ["init", "set_state", "start", "step"]

_session: Session | None = None
_by_optimizer = False
_opened = False  # PROF_CONFIG_PATH is opened once, even if that fails


def init(path: Any) -> None:
    """Watch profiler_config.json in a folder; the file is created if missing.

    Args:
        path: the folder. With several machines, one that all of them share.
    """
    if _by_optimizer:
        messages.once(messages.warning, "dynamic_profile.init has no effect: PROF_CONFIG_PATH is set and takes precedence")
    elif _session is not None:
        messages.warning("dynamic_profile is already initialised; this call has no effect")
    else:
        warn_on_failure("dynamic_profile.init", _open, path)


def step() -> None:
    """A step of training or inference has ended."""
    if _by_optimizer:
        messages.once(
            messages.warning, "dynamic_profile.step has no effect: PROF_CONFIG_PATH is set, so optimizer steps are counted"
        )
    elif _session is not None:
        _session.step()


def start(config_path: Any = None) -> None:
    """Record from here on, as the file says, for as many calls of `step` as it has warm-up and active steps.

    Args:
        config_path: a file like profiler_config.json, read once; if missing or invalid, the file of `init` is used.
    """
    if _session is None:
        warn_on_failure("dynamic_profile.start", _open, None)
    if _session is not None:
        warn_on_failure("dynamic_profile.start", _session.start, config_path)


def set_state(state: Any) -> None:
    """Set the step count of a resumed job: `{"cur_step": n}`."""
    number = state.get("cur_step") if isinstance(state, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        messages.error(f'dynamic_profile.set_state needs {{"cur_step": n}} with n from 0, not {state!r}')
    elif _session is None:
        messages.error("call dynamic_profile.init before dynamic_profile.set_state")
    else:
        _session.worker.cur_step = number


def watch_optimizers() -> None:
    """Follow PROF_CONFIG_PATH; starts with the first optimizer, so that launcher processes are not affected."""
    global _by_optimizer
    if os.environ.get("PROF_CONFIG_PATH") and not _by_optimizer and not _vendor_watches():
        _by_optimizer = True
        optimizer_steps.watch(_open_from_environment, _count)


def watched_folder() -> Path | None:
    """The folder whose requests this process follows already; None where it follows none."""
    return _session.folder if _session is not None else None


def _vendor_watches() -> bool:
    """Where the vendor's torch_npu is installed, it handles the variable itself."""
    found = importlib.util.find_spec("torch_npu")
    return found is not None and Path(stepscope.__file__).parent not in Path(found.origin or "/").parents


def _open(path: Any) -> None:
    global _session
    _session = Session(path)


def _open_from_environment() -> None:
    global _opened
    if not _opened:
        _opened = True
        warn_on_failure("dynamic_profile (PROF_CONFIG_PATH)", _open, os.environ.get("PROF_CONFIG_PATH"))


def _count() -> None:
    if not _opened:  # in a forked child
        _open_from_environment()
    if _session is not None:
        _session.step()


def _at_exit() -> None:
    if _session is not None:
        quietly(_session.end)


def _in_child() -> None:
    """A forked child has no watching thread; if it trains, it starts its own."""
    global _session, _opened
    _session, _opened = None, False


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
warn_on_failure("dynamic_profile (PROF_CONFIG_PATH)", watch_optimizers)

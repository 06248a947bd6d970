# SPDX-License-Identifier: Apache-2.0
"""Lets an unchanged script use this profiler: MindSpore's own names lead here, and a missing device becomes the CPU."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from stepscope.collect import messages
from stepscope.collect.guard import warn_on_failure

# Where MindSpore keeps each name; the versions differ, and only what exists is replaced.
_PLACES = {
    "Profiler": ("mindspore", "mindspore.profiler", "mindspore.profiler.profiler"),
    "profile": ("mindspore.profiler",),
    "Profile": ("mindspore.profiler.profiler",),
    "analyse": ("mindspore.profiler.profiler",),
    "schedule": ("mindspore.profiler",),
    "Schedule": ("mindspore.profiler.schedule",),
    "tensorboard_trace_handler": ("mindspore.profiler", "mindspore.profiler.profiler"),
    "tensor_board_trace_handler": ("mindspore.profiler", "mindspore.profiler.profiler"),
    "_ExperimentalConfig": ("mindspore.profiler", "mindspore.profiler.experimental_config"),
    "DynamicProfilerMonitor": ("mindspore.profiler", "mindspore.profiler.dynamic_profiler"),
}
# Names of documents that a later MindSpore dropped: scripts written by them still find them.
_ADDED = ("tensor_board_trace_handler",)
_ACCELERATORS = ("Ascend", "Davinci", "GPU")
_stock: dict[str, Any] = {}


def install() -> None:
    """Redirect the names of the imported MindSpore; a failure leaves the script with MindSpore's own."""
    if not _stock:
        warn_on_failure("redirecting MindSpore's profiler", _redirect_names)
        warn_on_failure("redirecting MindSpore's device", _redirect_device)


def stock(name: str) -> Any:
    """A name of MindSpore's own profiler, whether it is redirected or not."""
    from mindspore import profiler

    return _stock.get(name) or getattr(profiler, name)


def _redirect_names() -> None:
    ours = _replacements()
    for name, places in _PLACES.items():
        for place in places:
            module = sys.modules.get(place)
            if module is None or not (hasattr(module, name) or name in _ADDED):
                continue
            _stock.setdefault(name, getattr(module, name, None))
            setattr(module, name, ours[name])


def _replacements() -> dict[str, Any]:
    from stepscope.frameworks import mindspore as here
    from stepscope.frameworks.mindspore.dynamic import DynamicProfilerMonitor
    from stepscope.frameworks.mindspore.offline import analyse

    return {
        **{name: getattr(here, name) for name in here.__all__},
        "Profile": here.profile,
        "Schedule": here.schedule,
        "DynamicProfilerMonitor": DynamicProfilerMonitor,
        "analyse": analyse,
    }


def _redirect_device() -> None:
    import mindspore
    from mindspore import context

    by_keyword = _with_available_target(context.set_context)
    mindspore.set_context = context.set_context = by_keyword
    if hasattr(mindspore, "set_device"):  # MindSpore 2.5 or later
        from mindspore import device_manager

        mindspore.set_device = device_manager.set_device = _on_available_device(device_manager.set_device)


def _with_available_target(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def set_context(*arguments: Any, **options: Any) -> Any:
        if "device_target" in options:
            options["device_target"] = _available(options["device_target"])
        return original(*arguments, **options)

    return set_context


def _on_available_device(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def set_device(device_target: Any, device_id: Any = None) -> Any:
        found = _available(device_target)
        return original(found, device_id) if found == device_target else original(found)

    return set_device


def _available(target: Any) -> Any:
    """The device that the script asks for, or the CPU if this MindSpore cannot use it."""
    from mindspore._c_expression import MSContext

    if target not in _ACCELERATORS:
        return target
    name = "Ascend" if target == "Davinci" else target
    if MSContext.get_instance().is_pkg_support_device(name):
        return target
    messages.once(messages.warning, f"no {name} device can be used here: the script asks for {target} and runs on the CPU")
    return "CPU"

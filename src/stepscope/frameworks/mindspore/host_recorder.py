# SPDX-License-Identifier: Apache-2.0
"""MindSpore's own recorder of host events, switched on where no accelerator does it (docs/formats/mindspore.md 12.1).

The recorder is reached through the names of its C++ functions, so by default it is used only with versions it was tested with.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from stepscope.collect import messages

TESTED = ("2.10.0",)
SAME_NAMES = ("2.7.0", "2.7.1", "2.8.0", "2.9.0")  # they have the functions, but were not tested
SWITCH = "STEPSCOPE_MINDSPORE_RECORDER"  # 1 uses it with any version that has the functions, 0 with none
_DUMPER = "_ZN9mindspore8profiler6ascend19ProfilingDataDumper"
_FUNCTIONS = {"instance": "11GetInstanceEv", "init": "4InitERKSsm", "start": "5StartEv", "stop": "4StopEv", "close": "6UnInitEv"}
_TRACER = "_ZN9mindspore8profiler12PythonTracer4callENS0_7CommandEj"
_TRACE_ALL, _TRACE_STOP = 1, 2
_RING_ENTRIES = 1 << 20


def available() -> bool:
    """Whether the recorder may be used; if not, one message says why."""
    import mindspore

    wanted = os.environ.get(SWITCH)
    if wanted == "0":
        return False
    version = str(mindspore.__version__)
    if version not in TESTED and wanted != "1":
        known = "has the same functions" if version in SAME_NAMES else "is unknown"
        messages.once(
            messages.warning,
            f"MindSpore {version} {known}: its host recorder was tested with {', '.join(TESTED)} and stays off; "
            f"kernels, memory and steps are recorded. {SWITCH}=1 switches it on",
        )
        return False
    return _functions() is not None


class HostRecorder:
    """Framework events, arrows and the input pipeline's stages into `mindspore.op_range`; Python calls with `with_stack`."""

    name = "op_range"

    def __init__(self, *, with_stack: bool = False):
        self._with_stack = with_stack
        self._text: ctypes.Array[ctypes.c_char] | None = None
        self._running = False

    def start(self, framework: Path) -> None:
        from mindspore import _c_expression

        call = _functions()
        assert call is not None
        recorder = call["instance"]()
        self._text, text = _old_string(str(framework))
        call["init"](recorder, ctypes.byref(text), _RING_ENTRIES)
        _c_expression._framework_profiler_enable_mi()
        _c_expression.ProfilerManager.get_instance().set_profile_framework("time")
        call["start"](recorder)
        self._running = True
        if self._with_stack and "trace" in call:
            call["trace"](_TRACE_ALL, 0)

    def stop(self) -> None:
        if not self._running:
            return
        self._running = False
        from mindspore import _c_expression

        call = _functions()
        assert call is not None
        if self._with_stack and "trace" in call:
            call["trace"](_TRACE_STOP, 0)
        _c_expression.ProfilerManager.get_instance().set_profile_framework("NULL")
        _c_expression._framework_profiler_disable_mi()
        recorder = call["instance"]()
        call["stop"](recorder)
        call["close"](recorder)


_found: dict[str, Any] | bool | None = None


def _functions() -> dict[str, Any] | None:
    """The recorder's functions by our names; None when one is missing."""
    global _found
    if _found is None:
        _found = _resolve() or False
    return _found if isinstance(_found, dict) else None


def _resolve() -> dict[str, Any] | None:
    import mindspore
    from mindspore import _c_expression

    try:
        library = ctypes.CDLL(str(Path(mindspore.__file__).parent / "lib" / "libmindspore_profiler.so"))
        found = {name: getattr(library, _DUMPER + suffix) for name, suffix in _FUNCTIONS.items()}
    except (OSError, AttributeError):
        return None
    needed = ("_framework_profiler_enable_mi", "_framework_profiler_disable_mi", "ProfilerManager", "PythonProfilerRecorder")
    if not all(hasattr(_c_expression, name) for name in needed):
        return None
    found["instance"].argtypes, found["instance"].restype = [], ctypes.c_void_p
    found["init"].argtypes, found["init"].restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], None
    for name in ("start", "stop", "close"):
        found[name].argtypes, found[name].restype = [ctypes.c_void_p], None
    if hasattr(library, _TRACER):
        found["trace"] = getattr(library, _TRACER)
        found["trace"].argtypes, found["trace"].restype = [ctypes.c_int, ctypes.c_uint], None
    return found


class _OldString(ctypes.Structure):
    """The header before the characters of a reference-counted std::string, which MindSpore is built with."""

    _fields_ = (("length", ctypes.c_size_t), ("capacity", ctypes.c_size_t), ("references", ctypes.c_int), ("padding", ctypes.c_int))


def _old_string(text: str) -> tuple[ctypes.Array[ctypes.c_char], ctypes.c_void_p]:
    """The memory of such a string, to be kept alive while it is used, and the pointer that is the string."""
    content = text.encode()
    head = ctypes.sizeof(_OldString)
    memory = ctypes.create_string_buffer(head + len(content) + 1)
    # With a negative count others do not share the memory but copy it.
    header = _OldString(len(content), len(content), -1, 0)
    ctypes.memmove(memory, ctypes.byref(header), head)
    ctypes.memmove(ctypes.addressof(memory) + head, content, len(content))
    return memory, ctypes.c_void_p(ctypes.addressof(memory) + head)

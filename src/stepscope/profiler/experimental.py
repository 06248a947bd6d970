# SPDX-License-Identifier: Apache-2.0
"""Extended settings of a profiler, each checked on its own (docs/formats/profiler-api.md 14)."""

from __future__ import annotations

from typing import Any

from stepscope.collect import messages
from stepscope.profiler.constants import AiCMetrics, ExportType, HostSystem, ProfilerLevel, values

_QUIET_LEVELS = (ProfilerLevel.Level0, ProfilerLevel.Level_none)


class _ExperimentalConfig:
    """Extended settings; an invalid value gives a warning and the default.

    Attribute names and their order are those of profiler_info.json.
    """

    def __init__(
        self,
        profiler_level: Any = ProfilerLevel.Level0,
        aic_metrics: Any = None,
        l2_cache: Any = False,
        msprof_tx: Any = False,
        data_simplification: Any = True,
        record_op_args: Any = False,
        op_attr: Any = False,
        gc_detect_threshold: Any = None,
        export_type: Any = None,
        host_sys: Any = None,
        mstx: Any = False,
        mstx_domain_include: Any = None,
        mstx_domain_exclude: Any = None,
        sys_io: Any = False,
        sys_interconnection: Any = False,
    ) -> None:
        # The level first: the default of the metrics depends on it.
        self._profiler_level = _word("profiler_level", profiler_level, values(ProfilerLevel), ProfilerLevel.Level0)
        self._aic_metrics = _metrics(aic_metrics, self._profiler_level)
        self._l2_cache = _flag("l2_cache", l2_cache)
        self._msprof_tx = _flag("msprof_tx", msprof_tx)
        self._mstx = _flag("mstx", mstx)
        self._data_simplification = data_simplification
        self.record_op_args = _flag("record_op_args", record_op_args)
        self._export_type = _exports(export_type)
        self._host_sys = _known_words("host_sys", host_sys, values(HostSystem))
        self._op_attr = _flag("op_attr", op_attr)
        self._gc_detect_threshold = _threshold(gc_detect_threshold)
        self._mstx_domain_include = _texts("mstx_domain_include", mstx_domain_include)
        self._mstx_domain_exclude = _texts("mstx_domain_exclude", mstx_domain_exclude)
        self._sys_io = _flag("sys_io", sys_io)
        self._sys_interconnection = _flag("sys_interconnection", sys_interconnection)
        self._resolve_conflicts()

    def __call__(self) -> dict[str, Any]:
        """The settings as profiler_info.json shows them."""
        return dict(vars(self))

    def _resolve_conflicts(self) -> None:
        """Resolve settings that depend on each other."""
        if self._data_simplification is not None and not isinstance(self._data_simplification, bool):
            messages.warning(f"data_simplification={self._data_simplification!r} is not a bool; using True")
            self._data_simplification = True
        if self._msprof_tx:
            messages.warning("msprof_tx is the old name of mstx; use mstx")
        if self._profiler_level == ProfilerLevel.Level_none and not self.marks:
            messages.warning("Level_none without mstx would record nothing; mstx is switched on")
            self._mstx = True
        if self._op_attr and self._profiler_level == ProfilerLevel.Level_none:
            messages.warning("op_attr has no effect at Level_none, which records no operators of the device")
            self._op_attr = False
        if not self.marks and (self._mstx_domain_include or self._mstx_domain_exclude):
            messages.warning("mstx_domain_include and mstx_domain_exclude need mstx=True and are ignored")
            self._mstx_domain_include, self._mstx_domain_exclude = [], []
        if self._mstx_domain_include and self._mstx_domain_exclude:
            messages.warning("mstx_domain_include and mstx_domain_exclude cannot be combined; mstx_domain_exclude is ignored")
            self._mstx_domain_exclude = []
        if self._gc_detect_threshold == 0:
            messages.info("gc_detect_threshold=0 records every garbage collection; that may be many")

    @property
    def marks(self) -> bool:
        return self._mstx or self._msprof_tx

    def device_settings(self) -> list[str]:
        """The settings that only an NPU obeys and that are not at their defaults. Level_none means the same everywhere."""
        level = self._profiler_level not in _QUIET_LEVELS
        implied = AiCMetrics.PipeUtilization if level else AiCMetrics.AiCoreNone
        given = {
            "profiler_level": level, "aic_metrics": self._aic_metrics != implied, "l2_cache": self._l2_cache,
            "op_attr": self._op_attr, "sys_io": self._sys_io, "sys_interconnection": self._sys_interconnection,
        }  # fmt: skip
        return [name for name, set_ in given.items() if set_]


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    messages.warning(f"{name}={value!r} is not a bool; using False")
    return False


def _word(name: str, value: Any, known: set[str], default: str) -> str:
    if isinstance(value, str) and value in known:
        return value
    messages.warning(f"{name}={value!r} is not one of {', '.join(sorted(known))}; using {default}")
    return default


def _metrics(value: Any, level: str) -> str:
    default = AiCMetrics.AiCoreNone if level in _QUIET_LEVELS else AiCMetrics.PipeUtilization
    if value is None:
        return default
    chosen = _word("aic_metrics", value, values(AiCMetrics), default)
    if level in _QUIET_LEVELS and chosen != AiCMetrics.AiCoreNone:
        messages.warning(f"aic_metrics need Level1 or Level2; at {level} none are recorded")
        return AiCMetrics.AiCoreNone
    return chosen


def _exports(value: Any) -> list[str]:
    if value is None:
        return [ExportType.Text]
    words = [value] if isinstance(value, str) else value
    if isinstance(words, list) and words and all(isinstance(word, str) and word in values(ExportType) for word in words):
        return list(dict.fromkeys(words))
    messages.warning(f"export_type={value!r} is not text, db or a list of them; using text")
    return [ExportType.Text]


def _texts(name: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return list(dict.fromkeys(value))
    messages.warning(f"{name}={value!r} is not a list of str; it is ignored")
    return []


def _known_words(name: str, value: Any, known: set[str]) -> list[str]:
    """The known members of a list; the others give one warning."""
    if value is None:
        return []
    if not isinstance(value, list):
        messages.warning(f"{name}={value!r} is not a list of {', '.join(sorted(known))}; it is ignored")
        return []
    unknown = [word for word in value if not isinstance(word, str) or word not in known]
    if unknown:
        listed = ", ".join(map(repr, unknown))
        messages.warning(f"{name}: {listed} is not one of {', '.join(sorted(known))} and is left out")
    return list(dict.fromkeys(word for word in value if word not in unknown))


def _threshold(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return value
    messages.warning(f"gc_detect_threshold={value!r} is not a number of milliseconds from 0; garbage collections are not recorded")
    return None

# SPDX-License-Identifier: Apache-2.0
"""What a profiler was asked to record, after validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Switches:
    """What is recorded of each operator."""

    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False


@dataclass(frozen=True)
class Budget:
    """Limits of one capture; None means unlimited."""

    max_seconds: float | None = None
    max_bytes: int | None = None


@dataclass(frozen=True)
class Settings:
    """One profiler's settings; `experimental` holds the attributes that profiler_info.json shows, in its order."""

    activities: tuple[str, ...] = ("CPU",)
    switches: Switches = Switches()
    schedule: Mapping[str, Any] | None = None
    experimental: Mapping[str, Any] = field(default_factory=dict)
    all_threads: bool = False
    budget: Budget = Budget()
    spool: Path | None = None
    tier: str | None = None  # native, kineto or ascend; None for the best available

    @property
    def gc_threshold_ms(self) -> float | None:
        value = self.experimental.get("_gc_detect_threshold")
        return None if value is None or "CPU" not in self.activities else float(value)

    @property
    def marks(self) -> bool:
        """Whether marks and ranges of the user are recorded."""
        return bool(self.experimental.get("_mstx") or self.experimental.get("_msprof_tx"))

    @property
    def ranges_only(self) -> bool:
        """Marks and steps, but no operators: Level_none, and nothing asks for details of operators."""
        return self.marks and self.experimental.get("_profiler_level") == "Level_none" and self.switches == Switches()

    @property
    def domains(self) -> tuple[str, ...]:
        """The only domains whose marks are recorded; empty for all."""
        return tuple(self.experimental.get("_mstx_domain_include") or ())

    @property
    def other_domains(self) -> tuple[str, ...]:
        """Domains whose marks are not recorded."""
        return tuple(self.experimental.get("_mstx_domain_exclude") or ())

    def wants_domain(self, domain: str) -> bool:
        return domain in self.domains if self.domains else domain not in self.other_domains

    @property
    def host_sys(self) -> tuple[str, ...]:
        return tuple(self.experimental.get("_host_sys") or ())


@dataclass(frozen=True)
class Place:
    """Where captures of one profiler go."""

    parent: Path
    worker: str | None = None
    temporary: bool = False  # removed together with the profiler

# SPDX-License-Identifier: Apache-2.0
"""Accelerate: `with accelerator.profile(StepscopeProfile("steps=2:3")) as prof:`, and `prof.step()` after each step.

Not for `kwargs_handlers`: Accelerate accepts its own classes alone there.
"""

from __future__ import annotations

from typing import Any

from stepscope.integrations.frameworks import framework
from stepscope.integrations.plan import Plan
from stepscope.integrations.session import Session

ProfileKwargs: Any = framework("accelerate", "accelerate.utils").ProfileKwargs


class StepscopeProfile(ProfileKwargs):  # type: ignore[misc]
    """Makes a session in place of torch's profiler.

    Args:
        plan: what to record (stepscope.integrations.Plan, or its text).
    """

    def __init__(self, plan: Plan | str):
        super().__init__()
        self.plan = plan

    def build(self) -> Session:  # type: ignore[override, unused-ignore]
        return Session(self.plan)

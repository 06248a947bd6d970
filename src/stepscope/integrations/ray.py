# SPDX-License-Identifier: Apache-2.0
"""Ray Train: `session = begin("steps=3:4,ranks=1")` in the function of the loop, and `session.step()` after each step.

Ray's own callbacks run in its controller, not where training is, so there is none here.
"""

from __future__ import annotations

from stepscope.integrations.frameworks import framework
from stepscope.integrations.plan import Plan
from stepscope.integrations.session import Session


def begin(plan: Plan | str, step: int = 0) -> Session:
    """A session of this worker, with its rank in the job.

    Args:
        plan: what to record (stepscope.integrations.Plan, or its text).
        step: the number of the first step; not 0 after a resume.
    """
    context = framework("'ray[train]'", "ray.train").get_context()
    session = Session(plan)
    session.begin(step, context.get_world_rank())
    return session

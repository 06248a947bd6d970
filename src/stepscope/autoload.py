# SPDX-License-Identifier: Apache-2.0
"""Called by torch at the end of its import, in every process with stepscope installed; does nothing unless a variable requests it.

PROF_CONFIG_PATH in the environment: steps of the script's optimizer can be recorded (stepscope.dynamic_profile).
STEPSCOPE_PROFILE: the steps that it names are recorded (stepscope.integrations.script).
STEPSCOPE_WATCH: steps are followed, and recorded when one is much slower than the others (stepscope.watch).
"""

from __future__ import annotations

import os

ANALYSE = "STEPSCOPE_PROFILE_ANALYSE"  # set by `stepscope run`, which has always written the files too


def load() -> None:
    if os.environ.get("PROF_CONFIG_PATH"):
        from stepscope.collect.guard import warn_on_failure

        warn_on_failure("PROF_CONFIG_PATH", _follow_requests)  # torch's import must not fail
    if os.environ.get("STEPSCOPE_WATCH"):
        from stepscope.collect.guard import warn_on_failure

        warn_on_failure("STEPSCOPE_WATCH", _watch)
    record_script()


def record_script() -> None:
    """Record what the variable asks for, with or without `stepscope run`; a failure must not break `import torch`."""
    if os.environ.get("STEPSCOPE_PROFILE"):
        from stepscope.collect.guard import warn_on_failure

        warn_on_failure("preparing the profiler", _record, os.environ["STEPSCOPE_PROFILE"])


def _record(plan: str) -> None:
    # Not at the top: it imports modules that import torch, whose import ends with a call of `load` above.
    from stepscope.integrations import script

    script.prepare(plan, analyse=ANALYSE in os.environ)


def _watch() -> None:
    from stepscope.watch import start_from_environment

    start_from_environment()


def _follow_requests() -> None:
    import stepscope.dynamic_profile  # noqa: F401 - its import does what the variable asks for

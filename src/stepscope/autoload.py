# SPDX-License-Identifier: Apache-2.0
"""Called by torch at the end of its import, in every process with stepscope installed; does nothing unless a variable requests it.

PROF_CONFIG_PATH in the environment: steps of the script's optimizer can be recorded (stepscope.dynamic_profile).
"""

from __future__ import annotations

import os


def load() -> None:
    if os.environ.get("PROF_CONFIG_PATH"):
        from stepscope.collect.guard import warn_on_failure

        warn_on_failure("PROF_CONFIG_PATH", _watch)  # torch's import must not fail


def _watch() -> None:
    import stepscope.dynamic_profile  # noqa: F401 - its import does what the variable asks for

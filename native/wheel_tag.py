# SPDX-License-Identifier: Apache-2.0
"""The tag of a wheel: any machine, or this kind of machine when a compiled library goes with it."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelTag(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if list((Path(self.root) / "src" / "stepscope" / "native" / "prebuilt").glob("*.so")):
            # No libpython in it: every Python 3 may load it. packaging/portable_wheels.sh builds for other machines than this one.
            here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{os.environ.get('STEPSCOPE_WHEEL_PLATFORM', here)}"
            build_data["pure_python"] = False

# SPDX-License-Identifier: Apache-2.0
"""The profiler under the name by which MindSpeed-MM's scripts import it; run as a module, it analyses captures."""

import sys

from stepscope.frameworks.mindspeed import Profiler

__all__ = ["Profiler"]

if __name__ == "__main__":
    from stepscope.frameworks.mindspeed.offline import main

    sys.exit(main())

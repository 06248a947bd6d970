# SPDX-License-Identifier: Apache-2.0
"""The profiler of MindSpeed trainers: settings from a file or the command line, then start, step and stop.

prof = Profiler("tools.json")
prof.start()
for batch in batches:
    train(batch)
    prof.step()
prof.stop()
"""

from stepscope.frameworks.mindspeed.command_line import add_arguments
from stepscope.frameworks.mindspeed.profiler import Profiler, from_fsdp2_config, from_megatron_args, from_mm_config

__all__ = ["Profiler", "add_arguments", "from_fsdp2_config", "from_megatron_args", "from_mm_config"]

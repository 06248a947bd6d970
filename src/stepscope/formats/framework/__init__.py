# SPDX-License-Identifier: Apache-2.0
"""The raw binary files that a framework's profiler leaves in `FRAMEWORK/`."""

from stepscope.formats.framework.clock import FrameworkClock, read_clock
from stepscope.formats.framework.host_tables import read
from stepscope.formats.framework.records import read_records, write

__all__ = ["FrameworkClock", "read", "read_clock", "read_records", "write"]

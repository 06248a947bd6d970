# SPDX-License-Identifier: Apache-2.0
"""Where every nanosecond of a step goes: windows of steps, one part per nanosecond, one row per busy nanosecond."""

from stepscope.analysis.partition.exclusive import exclusive_time
from stepscope.analysis.partition.model import DeviceModel, device_model
from stepscope.analysis.partition.parts import PARTS, Partition, partition

__all__ = ["PARTS", "DeviceModel", "Partition", "device_model", "exclusive_time", "partition"]

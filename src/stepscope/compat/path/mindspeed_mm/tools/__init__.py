# SPDX-License-Identifier: Apache-2.0
"""See mindspeed_mm.tools.profiler."""

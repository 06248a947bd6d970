# SPDX-License-Identifier: Apache-2.0
"""Stand-in for MindSpeed-MM where it is not installed: its profiler only; see stepscope.frameworks.mindspeed."""

# SPDX-License-Identifier: Apache-2.0
"""Timelines of Ascend captures: trace_view.json and msprof_*.json of all layout generations."""

FILE = "trace_view.json"

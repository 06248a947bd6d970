# SPDX-License-Identifier: Apache-2.0
"""Rows of the profiler's database from tables, in the current layout."""

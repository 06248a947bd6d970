# SPDX-License-Identifier: Apache-2.0
"""Engines for text, JSON, csv and SQLite pages; they know no table and no file of a profiler."""

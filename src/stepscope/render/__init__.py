# SPDX-License-Identifier: Apache-2.0
"""Engines for text, JSON, csv and SQLite pages, independent of tables and of profiler files."""

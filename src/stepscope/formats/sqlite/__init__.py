# SPDX-License-Identifier: Apache-2.0
"""SQLite files of other programs: opened without leaving a trace, damaged tables salvaged."""

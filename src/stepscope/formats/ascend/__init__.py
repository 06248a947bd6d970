# SPDX-License-Identifier: Apache-2.0
"""The files of Ascend profilers that users know: csv, JSON, timeline and databases, all layout generations."""

# SPDX-License-Identifier: Apache-2.0
"""`cluster_analysis_output/` of a run, as msprof-analyze writes it and MindStudio Insight reads it (docs/cluster.md)."""

from stepscope.export.cluster.ranks import DB, TEXT, RankFiles

__all__ = ["DB", "TEXT", "RankFiles"]

# SPDX-License-Identifier: Apache-2.0
"""All ranks of a run: findings, heat map, timeline of ranks, matrix, pipeline and what-if."""

# SPDX-License-Identifier: Apache-2.0
"""The job played again with other times: what a step would take if a rank, a link or a wait were as it could be."""

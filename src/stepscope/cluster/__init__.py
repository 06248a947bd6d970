# SPDX-License-Identifier: Apache-2.0
"""Many ranks of one run: each becomes a small digest on its own clock, and every answer is a reduction of digests."""

# SPDX-License-Identifier: Apache-2.0
"""What links and groups of ranks are slow, and how fast pairs of ranks are."""

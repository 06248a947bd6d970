# SPDX-License-Identifier: Apache-2.0
"""Two captures beside each other: what one took longer for than the other. The first is the baseline."""

# SPDX-License-Identifier: Apache-2.0
"""Cost of the diff of two captures: `python -m benchmarks.diff`."""

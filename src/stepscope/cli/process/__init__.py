# SPDX-License-Identifier: Apache-2.0
"""Settings of the process that a command runs in."""

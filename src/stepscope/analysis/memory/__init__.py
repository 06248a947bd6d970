# SPDX-License-Identifier: Apache-2.0
"""Device memory: blocks, who allocated them, what they were for, how full the device was."""

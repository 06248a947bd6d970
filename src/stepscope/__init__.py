# SPDX-License-Identifier: Apache-2.0
"""Where every step of an AI training or inference run goes, on NPU, GPU or CPU."""

__version__ = "0.1.0"

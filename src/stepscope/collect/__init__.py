# SPDX-License-Identifier: Apache-2.0
"""What runs inside the training process: one module per source of records."""

# SPDX-License-Identifier: Apache-2.0
"""What traces of GPUs have in common, whatever program wrote them."""

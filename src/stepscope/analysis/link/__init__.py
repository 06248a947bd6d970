# SPDX-License-Identifier: Apache-2.0
"""What no single source knows: who called, who launched, which step, which block belongs to whom."""

# SPDX-License-Identifier: Apache-2.0
"""Commands that hand captures on."""

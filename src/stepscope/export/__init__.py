# SPDX-License-Identifier: Apache-2.0
"""Tables -> the files that users know."""

# SPDX-License-Identifier: Apache-2.0
"""Files that the collector of stepscope itself leaves in FRAMEWORK beside the framework's records."""

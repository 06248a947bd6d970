# SPDX-License-Identifier: Apache-2.0
"""Hand captures on: pack them, take out names, cut a part, join ranks, convert them, publish them to a tracker."""

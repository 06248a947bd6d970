# SPDX-License-Identifier: Apache-2.0
"""What each view of the page shows: pure functions of a loaded capture and a query."""

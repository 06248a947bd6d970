# SPDX-License-Identifier: Apache-2.0
"""What each view of the page shows: pure functions of an opened capture and a query."""

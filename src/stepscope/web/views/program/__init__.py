# SPDX-License-Identifier: Apache-2.0
"""Views of the program that was recorded: its lines, and how near its operators come to what the chip can do."""

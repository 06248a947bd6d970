# SPDX-License-Identifier: Apache-2.0
"""The timeline as JSON: what it shows, how it is laid out, and its three forms."""

# SPDX-License-Identifier: Apache-2.0
"""A run as one HTML file: no script, nothing loaded from anywhere, so that it opens offline, from a mail, for ever."""

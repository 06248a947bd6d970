# SPDX-License-Identifier: Apache-2.0
"""The host's half of a raw folder: calls, queued tasks, operators, communication, marks."""

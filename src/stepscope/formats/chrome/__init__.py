# SPDX-License-Identifier: Apache-2.0
"""Chrome trace JSON: a file of events into columns, whoever wrote it."""

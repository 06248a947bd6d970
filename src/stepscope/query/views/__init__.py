# SPDX-License-Identifier: Apache-2.0
"""Views: relations with fixed columns that are computed from the tables when a question names them (docs/query.md)."""

# SPDX-License-Identifier: Apache-2.0
"""Pure functions: tables in, table out."""

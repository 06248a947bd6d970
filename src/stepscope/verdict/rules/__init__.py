# SPDX-License-Identifier: Apache-2.0
"""The rules, one module per family; `catalogue` lists them all."""

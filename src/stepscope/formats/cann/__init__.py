# SPDX-License-Identifier: Apache-2.0
"""Raw `PROF_*` folders, read without the vendor's toolkit (cann-raw.md)."""

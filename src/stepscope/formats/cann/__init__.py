# SPDX-License-Identifier: Apache-2.0
"""Raw `PROF_*` folders, read without the vendor's toolkit (cann-raw.md)."""

from stepscope.formats.cann.tables import read

__all__ = ["read"]

# SPDX-License-Identifier: Apache-2.0
"""Bytes on disk <-> tables: one module (or folder) per format."""

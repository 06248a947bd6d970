# SPDX-License-Identifier: Apache-2.0
"""Captures that are tables and a manifest alone: parts of others (`slice`), several joined (`merge`), and shared ones."""

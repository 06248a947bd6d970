# SPDX-License-Identifier: Apache-2.0
"""The colours of the page (web/src/colour.ts), so that a name looks the same in both."""

from __future__ import annotations

PALETTE = (
    "#3b6fd4", "#e8833a", "#2a9d8f", "#c8476b", "#8a63d2", "#d4a72c", "#4db6e2", "#7a9a3a",
    "#b0648f", "#5f7f9f", "#a45b2a", "#57c08a", "#f09a9a", "#2f5fa3", "#b9a3e8", "#8f8f3d",
    "#e05cc0", "#2f8d5f", "#e8bd6a", "#62c4c0", "#a8434e", "#8fabd6", "#7d5aa6", "#a9c24a",
)  # fmt: skip
FIXED = {
    "Computing": "#3b6fd4", "Computation": "#3b6fd4", "Kernel": "#3b6fd4", "Overlapped": "#7d5aa6", "Overlapping": "#7d5aa6",
    "Communication": "#e8833a", "Communication(Not Overlapped)": "#e8833a", "Free": "#b6bfca", "Other": "#98a2b0",
    "Bubble": "#c8476b", "Preparing": "#d4a72c", "Stage": "#57c08a", "DataLoader": "#a45b2a", "Runtime": "#2a9d8f",
    "CPU Exec": "#7a9a3a", "Memcpy": "#4db6e2", "Memset": "#b0648f", "Data Transfer Time": "#2a9d8f",
    "Synchronizing Time": "#c8476b", "Wait (other)": "#e8bd6a", "Idle": "#b6bfca", "Allocated (MB)": "#3b6fd4",
    "Reserved (MB)": "#e8833a", "Active (MB)": "#57c08a",
}  # fmt: skip


def colour_of(name: str) -> str:
    """A fixed colour, else the one that the name's FNV-1a hash points to."""
    if name in FIXED:
        return FIXED[name]
    value = 0x811C9DC5
    units = name.encode("utf-16-le", "surrogatepass")
    for place in range(0, len(units), 2):
        value = ((value ^ int.from_bytes(units[place : place + 2], "little")) * 0x01000193) & 0xFFFFFFFF
    return PALETTE[value % len(PALETTE)]

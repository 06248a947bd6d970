# SPDX-License-Identifier: Apache-2.0
"""The colours of the page (web/src/colour.ts), so that a name looks the same in both."""

from __future__ import annotations

PALETTE = (
    "#3b6fd4", "#e8833a", "#2a9d8f", "#c8476b", "#8a63d2", "#d4a72c", "#4db6e2", "#7a9a3a",
    "#b0648f", "#5f7f9f", "#a45b2a", "#57c08a", "#f09a9a", "#2f5fa3", "#b9a3e8", "#8f8f3d",
    "#e05cc0", "#2f8d5f", "#e8bd6a", "#62c4c0", "#a8434e", "#8fabd6", "#7d5aa6", "#a9c24a",
)  # fmt: skip
FIXED = {
    "Computing": "#2f63c8", "Computation": "#2f63c8", "Kernel": "#2f63c8", "Overlapped": "#bd94e9", "Overlapping": "#bd94e9",
    "Communication": "#c65a14", "Communication(Not Overlapped)": "#c65a14", "Free": "#c3cad4", "Other": "#8a94a2",
    "Bubble": "#e92764", "Preparing": "#e9c03c", "Stage": "#a2dab8", "DataLoader": "#d47058", "Runtime": "#36d99f",
    "CPU Exec": "#a6e08c", "Memcpy": "#62b5ea", "Memset": "#882066", "Data Transfer Time": "#2f63c8",
    "Synchronizing Time": "#e9c03c", "Wait (other)": "#a34a10", "Idle": "#c3cad4", "Allocated (MB)": "#3b6fd4",
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

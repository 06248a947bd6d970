# SPDX-License-Identifier: Apache-2.0
"""The keys of both files, by column of `collective_times`, `collective_packets` and `collective_links`."""

FILE, MATRIX_FILE = "communication.json", "communication_matrix.json"
KINDS = ("p2p", "collective")
TOTAL = "Total Op Info"

# Of an operator.
TIME_INFO, BANDWIDTH_INFO = "Communication Time Info", "Communication Bandwidth Info"
START = {"start_us": "Start Timestamp(us)"}
TIMES = {
    "elapse_ms": "Elapse Time(ms)",
    "transit_ms": "Transit Time(ms)",
    "wait_ms": "Wait Time(ms)",
    "sync_ms": "Synchronization Time(ms)",
    "idle_ms": "Idle Time(ms)",
}
# Of these times, which share of them and the transit time they are.
RATIOS = {"wait_ms": "Wait Time Ratio", "sync_ms": "Synchronization Time Ratio"}

# Of a pair of ranks.
TRANSPORT, OP_NAME = "Transport Type", "Op Name"
LINK = {"transit_mb": "Transit Size(MB)", "transit_ms": "Transit Time(ms)", "bandwidth": "Bandwidth(GB/s)"}

# Of a transport of an operator.
PACKETS = {**LINK, "large_packet_ratio": "Large Packet Ratio"}
SIZES = "Size Distribution"

# SPDX-License-Identifier: Apache-2.0
"""communication.json and communication_matrix.json: time, packets and links of each collective (docs/formats/outputs.md 9).

Of communication.json there are two forms: `{"op@group": …}` beside the raw data of a capture and
`{"step50": {"p2p": {"op@group": …}, "collective": {…}}}` in the parsed output, which is the one that is written.
communication_matrix.json has an operator's links only in the first form; the second holds extremes and sums
(`allreduce-top1@group`).
"""

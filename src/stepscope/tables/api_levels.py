# SPDX-License-Identifier: Apache-2.0
"""The layers of calls on an Ascend host, by the numbers that order them."""

API_LEVELS = {
    "runtime": 5000,
    "communication": 5500,
    "node": 10000,
    "model": 15000,
    "acl": 20000,
    "op": 50001,
    "queue": 50002,
    "trace": 50003,
    "mstx": 50004,
}

# SPDX-License-Identifier: Apache-2.0
"""The device's half of a raw folder: tasks, counters of cores, frequency, the scheduler's own records."""

# SPDX-License-Identifier: Apache-2.0
"""Communication operators: what they moved between ranks and how long they took, of one capture and of all workers of a run."""

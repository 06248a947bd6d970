# SPDX-License-Identifier: Apache-2.0
"""Sampled data of a raw folder: memories, caches, links, network ports, AI CPU, the host's usage."""

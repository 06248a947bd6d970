# SPDX-License-Identifier: Apache-2.0
"""The files of Ascend profilers that users know: csv, JSON, timeline and databases, all layout generations.

Each file has one module here that declares its columns and reads and writes it by that declaration.
"""

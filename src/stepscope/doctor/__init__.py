# SPDX-License-Identifier: Apache-2.0
"""A self-test for machines with NPUs: records, analyses, compares with the vendor's own tool, writes one report."""

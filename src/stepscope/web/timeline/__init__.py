# SPDX-License-Identifier: Apache-2.0
"""The timeline of a capture behind the Trace view: slices, levels of detail, arrows."""

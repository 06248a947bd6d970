# SPDX-License-Identifier: Apache-2.0
"""What MindSpore of 2020 left of a run on 910A: raw device records and text, without a PROF folder (docs/formats/cann.md 6.11)."""

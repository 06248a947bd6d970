# SPDX-License-Identifier: Apache-2.0
"""Importing this lets a script written for `cuda` run on `npu`."""

from stepscope.compat.transfer import activate

activate()

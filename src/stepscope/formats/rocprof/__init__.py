# SPDX-License-Identifier: Apache-2.0
"""JSON results of AMD's rocprofv3 (rocprofiler-sdk): dispatches, copies, API calls and roctx ranges."""

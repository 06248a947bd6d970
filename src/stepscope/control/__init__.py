# SPDX-License-Identifier: Apache-2.0
"""The folder by which a running job is told what to record, and by which its ranks answer.

`profiler_config.json` is the request (anyone may edit it), `status/` holds one small answer per process.
"""

# SPDX-License-Identifier: Apache-2.0
"""The folder through which a running job receives requests for captures, and its ranks answer.

`profiler_config.json` is the request (anyone may edit it), `status/` holds one small answer per process.
"""

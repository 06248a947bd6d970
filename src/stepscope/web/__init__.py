# SPDX-License-Identifier: Apache-2.0
"""The viewer: one WSGI app on the tables of captures, behind `stepscope view` and inside TensorBoard (docs/http_api.md)."""

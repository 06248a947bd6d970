# SPDX-License-Identifier: Apache-2.0
"""Called by torch at the end of its import, under `stepscope run`. Must not fail: torch's import would."""


def load() -> None:
    try:
        from stepscope.compat import after_torch
    except ImportError:
        return  # another Python than the one that `stepscope run` was started with
    after_torch.load()

# SPDX-License-Identifier: Apache-2.0
"""Called by torch at the end of its import, under `stepscope run`. Must not fail: that would break the import."""


def load() -> None:
    try:
        from stepscope.compat import after_torch
    except ImportError:
        return  # a different Python from the one that runs `stepscope run`
    after_torch.load()

# SPDX-License-Identifier: Apache-2.0
"""Stand-in for the vendor's torch_npu on the simulated NPU; see stepscope.compat."""

STEPSCOPE_STAND_IN = True

from stepscope import compat  # noqa: E402 - the line above identifies the stand-in while it loads

if compat.vendor_spec() is None:
    # Before modules of ours: torch ends its import with calls of ours, which must not find them half imported.
    import torch  # noqa: F401

    from stepscope.compat.names import fill

    fill(__name__)
else:
    import importlib
    import sys

    # Ours came first on the path, but the vendor's package takes precedence.
    del sys.modules[__name__]
    compat.install()
    importlib.import_module(__name__)

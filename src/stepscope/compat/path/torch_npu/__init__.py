# SPDX-License-Identifier: Apache-2.0
"""Stand-in for the vendor's torch_npu on the simulated NPU; see stepscope.compat."""

STEPSCOPE_STAND_IN = True

from stepscope import compat  # noqa: E402 - the line above identifies the stand-in while it loads

if compat.vendor_spec() is None:
    from stepscope.compat.names import fill

    fill(__name__)
else:
    import importlib
    import sys

    # Ours came first on the path, but the vendor's package takes precedence.
    del sys.modules[__name__]
    compat.install()
    importlib.import_module(__name__)

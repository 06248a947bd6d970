# SPDX-License-Identifier: Apache-2.0
"""Stand-in for the vendor's torch_npu on the simulated NPU; see stepscope.compat."""

STEPSCOPE_STAND_IN = True

from stepscope import compat  # noqa: E402 - the line above says who this is to whoever asks while we load

if compat.vendor_spec() is None:
    from stepscope.compat.names import fill

    fill(__name__)
else:
    import importlib
    import sys

    # Ours came first on the path, the vendor's is what was meant.
    del sys.modules[__name__]
    compat.install()
    importlib.import_module(__name__)

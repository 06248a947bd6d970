# SPDX-License-Identifier: Apache-2.0
"""Run the reference analyser on a capture, without an NPU: `reference.py SOURCES EXPORTS CAPTURE`, with `text` or `text,db`.

SOURCES is a folder with the Python files of a torch-npu wheel (`pip download --no-deps torch-npu`, unzipped). The steps in which
it calls the vendor's `msprof`, and those that delete what that command has written before, are left out: the captures of the
benchmark hold its files already, for `db` its database, too.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types


class _Anything(types.ModuleType):
    """A compiled module that nothing here needs."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: None


def _package(name: str, folder: str | None) -> None:
    module = types.ModuleType(name) if folder else _Anything(name)
    module.__path__ = [folder] if folder else []
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def main() -> int:
    root = f"{sys.argv[1]}/torch_npu"
    for name, folder in (("torch_npu", root), ("torch_npu.profiler", f"{root}/profiler"), ("torch_npu.utils", f"{root}/utils")):
        _package(name, folder)
    for name in ("torch_npu._C", "torch_npu._C._profiler", "torch_npu.npu"):
        _package(name, None)
    from torch_npu.profiler.analysis._npu_profiler import NpuProfiler
    from torch_npu.profiler.analysis._profiling_parser import ProfilingParser
    from torch_npu.profiler.analysis.prof_common_func._cann_package_manager import CannPackageManager
    from torch_npu.profiler.analysis.prof_common_func._constant import Constant
    from torch_npu.profiler.analysis.prof_parse._cann_file_parser import CANNFileParser
    from torch_npu.profiler.analysis.prof_view.cann_parse import _cann_analyze, _cann_export

    def done(self: object, deps_data: object) -> tuple[object, None]:
        return Constant.SUCCESS, None

    for name in ("del_summary_and_timeline_data", "del_output_path_data"):
        setattr(CANNFileParser, name, lambda self: None)
    ProfilingParser.delete_previous_cann_db_files = lambda self: None
    CannPackageManager.SUPPORT_EXPORT_DB = True
    _cann_export.CANNExportParser.run = done
    _cann_export.CANNTimelineParser.run = done
    _cann_analyze.CANNAnalyzeParser.run = done
    NpuProfiler.analyse(sys.argv[3], max_process_number=1, export_type=sys.argv[2].split(","))
    return 0


if __name__ == "__main__":
    sys.exit(main())

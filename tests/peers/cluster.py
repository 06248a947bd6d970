# SPDX-License-Identifier: Apache-2.0
"""What msprof-analyze makes of runs: `python cluster.py MODE FOLDER OUT [MODE FOLDER OUT ...]`.

Runs in an environment of its own (`.venv-peers`) and imports nothing of stepscope.
"""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    from msprof_analyze.cluster_analyse.cluster_analysis import Interface

    for mode, folder, out in zip(arguments[::3], arguments[1::3], arguments[2::3], strict=True):
        Interface(
            {
                "profiling_path": folder, "mode": mode, "output_path": out, "force": True, "parallel_mode": "concurrent",
                "export_type": "db", "rank_list": "all", "step_id": -1,
            }
        ).run()  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

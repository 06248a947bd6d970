# SPDX-License-Identifier: Apache-2.0
"""Python sources of real torch_npu packages: `python tests/vendor/fetch.py FOLDER [VERSION …]`.

The wheels come from the registry without dependencies and are never installed: only their Python files are unpacked, one folder
per version. Exit code 1 when a version cannot be had.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# The oldest one, the last before lists in export_type and before mstx, and the one for the torch that the tests use.
VERSIONS = ("2.1.0.post8", "2.4.0", "2.6.0", "2.13.0")
_PARTS = ("torch_npu/profiler/", "torch_npu/utils/", "torch_npu/_init/", "torch_npu/npu/mstx.py")


def fetch(folder: Path, version: str) -> bool:
    """Put the sources of one version into `folder`/`version`; False when the registry does not have it."""
    target = folder / version
    if target.is_dir():
        return True
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run([*command, "--dest", downloads, f"torch-npu=={version}"], capture_output=True, text=True, check=False)
        wheels = list(Path(downloads).glob("*.whl"))
        if done.returncode or not wheels:
            print(f"torch_npu {version} could not be downloaded: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            return False
        partial = folder / f".{version}"
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(partial, [name for name in wheel.namelist() if name.startswith(_PARTS) and name.endswith(".py")])
        partial.rename(target)
    return True


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    missing = [version for version in sys.argv[2:] or VERSIONS if not fetch(folder, version)]
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

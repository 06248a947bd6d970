# SPDX-License-Identifier: Apache-2.0
"""Take what the captures give now for right: `make bless`, or `python tests/captures/bless.py [NAME …]`.

Look at `git diff tests/captures` afterwards: that is what changed for users.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import snapshot


def main() -> None:
    known = snapshot.names()
    for path in (snapshot.FOLDER / "expected").iterdir():
        if path.name not in known:
            shutil.rmtree(path)
    for name in sys.argv[1:] or known:
        with tempfile.TemporaryDirectory() as folder:
            for part, sections in snapshot.take(name, Path(folder)).items():
                path = snapshot.place(name, part)
                before = snapshot.read(path)
                changed = sorted(title for title in {*before, *sections} if before.get(title) != sections.get(title))
                snapshot.write(path, sections)
                if changed:
                    print(f"{name} {part}: {', '.join(changed)}")


if __name__ == "__main__":
    main()

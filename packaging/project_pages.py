# SPDX-License-Identifier: Apache-2.0
"""Addresses in the metadata of a release: those of the repository that builds it, so that a copy elsewhere names itself.

Links of README.md are relative, as the repository wants them; package indexes want whole addresses.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?://|#|mailto:)([^)\s]+)(\))")


class ProjectPages(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        # Set by the workflow that releases; a build at home has no addresses.
        server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
        if server and repository:
            address = f"{server}/{repository}"
            metadata["urls"] = {
                "Source": address,
                "Documentation": f"{address}/tree/main/docs",
                "Issues": f"{address}/issues",
                "Changelog": f"{address}/blob/main/CHANGELOG.md",
            }
            text = whole_addresses(text, address)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def whole_addresses(text: str, address: str) -> str:
    """Links to files of the repository as addresses; pictures as the files themselves."""

    def change(found: re.Match[str]) -> str:
        kind = "raw" if found[1].startswith("!") else "blob"
        return f"{found[1]}{address}/{kind}/main/{found[2]}{found[3]}"

    return _LINK.sub(change, text)

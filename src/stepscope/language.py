# SPDX-License-Identifier: Apache-2.0
"""In which language the user reads."""

from __future__ import annotations

import os


def language(given: str | None = None) -> str:
    """The language asked for, else that of the user's locale; English when there is no translation."""
    name = given or os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG") or _of_locale()
    return "zh" if name.lower().startswith("zh") else "en"


def _of_locale() -> str:
    import locale

    return locale.getlocale()[0] or ""

# SPDX-License-Identifier: Apache-2.0
"""The documentation site: `make site` builds it offline, with warnings as errors."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from stepscope import __version__

project = "stepscope"
author = "the stepscope authors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["images"]
html_theme = "furo"
html_title = "stepscope"
html_copy_source = False
# Nothing is loaded from anywhere: fonts and scripts are those of the theme.
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "default"
pygments_dark_style = "monokai"
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_numpy_docstring = False
# Pages that readers of the repository reach by links, not by the tree of the site.
suppress_warnings = ["toc.not_included", "misc.highlighting_failure"]
autodoc_default_options = {"no-index": True}  # both languages describe the same objects

# SPDX-License-Identifier: Apache-2.0
"""The viewer as a dynamic plugin of TensorBoard: `tensorboard --logdir FOLDER` shows the tab."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

from tensorboard.plugins import base_plugin

from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue

NAME = "stepscope"


class StepscopePlugin(base_plugin.TBPlugin):  # type: ignore[misc]  # tensorboard has no types
    """One app for all routes; TensorBoard does the binding and the checking of hosts."""

    plugin_name = NAME

    def __init__(self, context: Any):
        logdirs = str(context.logdir or "")
        # TensorBoard takes several folders with --logdir_spec: name:path,name:path.
        parts = [part.partition(":")[2] or part for part in logdirs.split(",") if part] if "," in logdirs else [logdirs]
        self.catalogue = Catalogue([Path(part).expanduser() for part in parts if part])
        self.app = App(self.catalogue)
        self._scanning = Thread(target=self.catalogue.scan, name="stepscope-scan", daemon=True)
        self._scanning.start()

    def is_active(self) -> bool:
        """True as soon as a run is found, and while the first look has not ended; never touches the disk."""
        return self.catalogue.known or self._scanning.is_alive()

    def get_plugin_apps(self) -> dict[str, Any]:
        return {"/": self.app, "/index.js": self.app, "/index.html": self.app, "/static/*": self.app, "/api/*": self.app}

    def frontend_metadata(self) -> Any:
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="STEPSCOPE", disable_reload=True)

"""`stepscope publish` to real trackers, offline: what it leaves there, and that it calls nobody."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from raw_capture import capture

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = """
import json, socket, sys
real = socket.socket.connect
def connect(self, address):
    # The trackers talk to helpers of their own on this machine.
    assert self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1", "localhost"), f"a call to {address}"
    return real(self, address)
socket.socket.connect = connect
from stepscope.share.publish import publish
where = publish("run", "wandb", with_pack=True, redact=("hosts",))
publish("run", "mlflow", with_pack=True)
import mlflow
(run,) = mlflow.search_runs(output_format="list")
files = [item.path for item in mlflow.MlflowClient().list_artifacts(run.info.run_id, "stepscope")]
print(json.dumps({"wandb": where, "metrics": sorted(run.data.metrics), "files": sorted(files)}))
"""


@pytest.mark.slow  # both trackers start servers of their own
def test_figures_report_and_pack_reach_both_trackers(tmp_path: Path):
    given = os.environ.get("STEPSCOPE_TRACKERS_PYTHON")
    python = Path(given) if given else REPOSITORY / ".venv-trackers" / "bin" / "python"
    if not python.is_file():
        pytest.skip("no environment with trackers: `make test` builds .venv-trackers")
    capture(tmp_path / "run")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB", "MLFLOW"))}
    environment |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    done = subprocess.run(
        [str(python), "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert "stepscope.findings_high" in said["metrics"]
    assert said["files"] == ["stepscope/capture.tar.zst", "stepscope/report.html"]
    assert list(Path(said["wandb"]).rglob("*.html"))

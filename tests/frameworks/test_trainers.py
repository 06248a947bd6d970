"""The hooks in real trainers: which steps they record, with accumulation, after a resume, and when training fails."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

from stepscope.capture import open_capture

REPOSITORY = Path(__file__).resolve().parents[2]


def interpreter() -> str:
    """Python with the trainers."""
    for candidate in (os.environ.get("STEPSCOPE_FRAMEWORKS_PYTHON"), REPOSITORY / ".venv-frameworks" / "bin" / "python"):
        if candidate and Path(candidate).is_file():
            return str(candidate)
    pytest.skip("no environment with trainers: `make test` builds .venv-frameworks, or set STEPSCOPE_FRAMEWORKS_PYTHON")


def run(folder: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(textwrap.dedent(code))
    return subprocess.run(
        [interpreter(), "train.py", *words],
        cwd=folder,
        env={**os.environ, "STEPSCOPE_MIN_FREE_BYTES": "0", "HF_HUB_OFFLINE": "1", "RAY_TRAIN_V2_ENABLED": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def recorded(folder: Path) -> list[int]:
    """Numbers of the recorded steps of the only capture."""
    (capture,) = (folder / "runs").glob("*_ascend_pt")
    return open_capture(capture).tables["steps"]["step"].sort().to_list()


HUGGING_FACE = """
    import sys, torch
    from transformers import Trainer, TrainingArguments
    from stepscope.integrations.huggingface import StepscopeCallback

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            self.batches = 0
        def forward(self, x, labels=None):
            self.batches += 1
            if "fail" in sys.argv and self.batches == 7:
                raise RuntimeError("of the user")
            out = self.layer(x)
            return {"loss": ((out - labels) ** 2).mean(), "logits": out}

    data = [{"x": torch.ones(4), "labels": torch.zeros(1)} for _ in range(64)]

    def train(steps, plan, checkpoint=None):
        options = TrainingArguments(
            "out", per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=int(steps), save_steps=5,
            report_to=[], use_cpu=True, disable_tqdm=True,
        )
        trainer = Trainer(model=Model(), args=options, train_dataset=data)
        trainer.add_callback(StepscopeCallback(plan))
        trainer.train(resume_from_checkpoint=checkpoint)

    for words in sys.argv[1:]:
        if words != "fail":
            train(*words.split())
"""


def test_hugging_face(tmp_path):
    """To import the trainer takes seconds, so one process trains three times: from the start, resumed, and too short."""
    plans = ("5 steps=2:3,out=runs", "10 steps=4:6,out=resumed/runs out/checkpoint-5", "4 steps=10:12,out=none")
    done = run(tmp_path, HUGGING_FACE, *plans)
    assert done.returncode == 0, done.stderr
    assert recorded(tmp_path) == [2, 3]
    assert recorded(tmp_path / "resumed") == [5, 6]
    assert "nothing was recorded: 4 steps ran, but the plan waits for steps 10 to 12, counted from 0" in done.stderr


def test_hugging_face_when_training_fails(tmp_path):
    done = run(tmp_path, HUGGING_FACE, "6 steps=2:4,out=runs", "fail")  # in step 3, so that step 2 is whole
    assert done.returncode != 0
    assert "RuntimeError: of the user" in done.stderr
    assert recorded(tmp_path)[0] == 2


def test_a_second_callback_is_refused_and_training_goes_on(tmp_path):
    second = HUGGING_FACE.replace(
        "trainer.train(", 'trainer.add_callback(StepscopeCallback("steps=2:3,out=second"))\n        trainer.train('
    )
    done = run(tmp_path, second, "5 steps=2:3,out=runs")
    assert done.returncode == 0, done.stderr
    assert recorded(tmp_path) == [2, 3]
    assert "another profiler is already running" in done.stderr
    assert not (tmp_path / "second").exists()


def test_accelerate(tmp_path):
    done = run(
        tmp_path,
        """
        import torch
        from accelerate import Accelerator
        from stepscope.integrations.accelerate import StepscopeProfile

        accelerator = Accelerator(cpu=True)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = accelerator.prepare(model, optimizer)
        with accelerator.profile(StepscopeProfile("steps=2:3,out=runs")) as prof:
            for _ in range(6):
                accelerator.backward(model(torch.ones(2, 4)).sum())
                optimizer.step()
                prof.step()
        """,
    )
    assert done.returncode == 0, done.stderr
    assert recorded(tmp_path) == [2, 3]


LIGHTNING = """
    import sys, torch
    import lightning.pytorch as L
    from stepscope.integrations.lightning import StepscopeCallback

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
        def training_step(self, batch, number):
            if number == failing:
                raise RuntimeError("of the user")
            return self.layer(batch).sum()
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def train(steps, plan, checkpoint=None):
        trainer = L.Trainer(
            max_steps=int(steps), accumulate_grad_batches=2, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, callbacks=[StepscopeCallback(plan)],
        )
        data = torch.utils.data.DataLoader(torch.ones(64, 4), batch_size=2)
        trainer.fit(Model(), data, ckpt_path=checkpoint)
        trainer.save_checkpoint("last.ckpt")

    failing = 7 if sys.argv[1] == "fail" else -1
    for words in sys.argv[1:]:
        if words != "fail":
            train(*words.split())
"""


def test_lightning(tmp_path):
    """With accumulated batches; then a run that is too short, and one that resumes it."""
    plans = ("6 steps=2:3,out=first/runs", "4 steps=9,out=none", "8 steps=3:6,out=runs last.ckpt")
    done = run(tmp_path, LIGHTNING, *plans)
    assert done.returncode == 0, done.stderr
    assert recorded(tmp_path / "first") == [2, 3]
    assert "nothing was recorded: 4 steps ran, but the plan waits for steps 9 to 9, counted from 0" in done.stderr
    assert recorded(tmp_path) == [4, 5, 6]


def test_lightning_when_training_fails(tmp_path):
    done = run(tmp_path, LIGHTNING, "fail", "6 steps=2:3,out=runs")  # in step 3, so that step 2 is whole
    assert done.returncode != 0
    assert "RuntimeError: of the user" in done.stderr
    assert recorded(tmp_path)[0] == 2


def test_ray_train(tmp_path):
    """A loop that asks for it, and one without a line of ours; Ray takes half a minute to come up, so both run in one."""
    done = run(
        tmp_path,
        f"""
        import ray, torch
        from ray.train import RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        def steps():
            model = torch.nn.Linear(4, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(8):
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
                yield

        def asking():
            from stepscope.integrations.ray import begin
            session = begin("steps=3:4,ranks=1,out={tmp_path}/asked/runs")
            for _ in steps():
                session.step()
            session.end()

        def train(loop, name, **variables):
            options = RunConfig(name=name, storage_path="{tmp_path}/ray", worker_runtime_env={{"env_vars": variables}})
            TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2), run_config=options).fit()

        ray.init(include_dashboard=False)
        train(asking, "asking")
        plan = "steps=3:4,ranks=1,out={tmp_path}/runs"
        train(lambda: [*steps()], "without", STEPSCOPE_PROFILE=plan, STEPSCOPE_MIN_FREE_BYTES="0")
        """,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert recorded(tmp_path / "asked") == [3, 4]
    captures = [open_capture(path) for path in (tmp_path / "runs").glob("*_ascend_pt")]
    assert sorted(capture.facts.rank for capture in captures) == [1]
    assert [capture.tables["steps"]["step"].sort().to_list() for capture in captures] == [[3, 4]]

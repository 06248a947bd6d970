# SPDX-License-Identifier: Apache-2.0
"""Lightning: `Trainer(callbacks=[StepscopeCallback("steps=10:12")])`."""

from __future__ import annotations

from typing import Any

from stepscope.integrations.frameworks import framework
from stepscope.integrations.plan import Plan
from stepscope.integrations.session import Session

Callback: Any = framework("lightning", "lightning.pytorch", "pytorch_lightning").Callback


class StepscopeCallback(Callback):  # type: ignore[misc]
    """Records steps: batches after which the trainer's `global_step` has changed, so that accumulated ones are one.

    Args:
        plan: what to record (stepscope.integrations.Plan, or its text).
    """

    def __init__(self, plan: Plan | str):
        self._session = Session(plan)
        self._step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._step = trainer.global_step
        self._session.begin(trainer.global_step, trainer.global_rank)

    def on_train_batch_end(self, trainer: Any, *rest: Any, **named: Any) -> None:
        if trainer.global_step != self._step:
            self._step = trainer.global_step
            self._session.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._session.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._session.end()

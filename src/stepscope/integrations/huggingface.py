# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Trainer: `trainer.add_callback(StepscopeCallback("steps=10:12,stack"))`."""

from __future__ import annotations

from typing import Any

from stepscope.integrations.frameworks import framework
from stepscope.integrations.plan import Plan
from stepscope.integrations.session import Session

TrainerCallback: Any = framework("transformers", "transformers").TrainerCallback


class StepscopeCallback(TrainerCallback):  # type: ignore[misc]
    """Records optimizer steps with the trainer's own numbers, counted from 0.

    Args:
        plan: what to record (stepscope.integrations.Plan, or its text).
    """

    def __init__(self, plan: Plan | str):
        self._session = Session(plan)

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self._session.begin(state.global_step, getattr(args, "process_index", None))

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self._session.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self._session.end()

# SPDX-License-Identifier: Apache-2.0
"""All views and the functions that compute them."""

from __future__ import annotations

from stepscope.query.views.answers import ANSWER_VIEWS
from stepscope.query.views.steps import STEP_VIEWS
from stepscope.query.views.view import View
from stepscope.query.views.work import WORK_VIEWS

VIEWS: dict[str, View] = {view.table.name: view for view in (*STEP_VIEWS, *WORK_VIEWS, *ANSWER_VIEWS)}

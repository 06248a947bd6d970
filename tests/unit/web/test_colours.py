# SPDX-License-Identifier: Apache-2.0
"""Parts that stand beside each other in a chart differ for eyes without green cones too (Machado 2009, severity 1)."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from stepscope.web.html_report.colours import FIXED
from stepscope.web.views.distributed import COMPUTATION, SYNCHRONIZING
from stepscope.web.views.steps import NPU_BAR, OTHER

SOURCE = Path(__file__).resolve().parents[3] / "web" / "src" / "colour.ts"
DEUTERANOPE = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
LEAST = 20.0  # distance in CIE Lab; neighbours of 2 can just be told apart side by side


def linear(colour: str) -> list[float]:
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]


def lab(rgb: list[float]) -> tuple[float, float, float]:
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    x, y, z = (
        sum(weight * value for weight, value in zip(row, rgb, strict=True)) / white
        for row, white in zip(rows, (0.95047, 1.0, 1.08883), strict=True)
    )
    fx, fy, fz = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def seen(colour: str) -> tuple[float, float, float]:
    rgb = linear(colour)
    mixed = [sum(weight * value for weight, value in zip(row, rgb, strict=True)) for row in DEUTERANOPE]
    return lab([min(1.0, max(0.0, value)) for value in mixed])


def apart(one: str, other: str) -> float:
    return sum((a - b) ** 2 for a, b in zip(seen(one), seen(other), strict=True)) ** 0.5


@pytest.mark.parametrize("parts", [COMPUTATION, SYNCHRONIZING, NPU_BAR, OTHER], ids=["computation", "synchronizing", "npu", "gpu"])
def test_parts_of_a_chart_can_be_told_apart(parts):
    close = {(a, b): apart(FIXED[a], FIXED[b]) for a, b in itertools.combinations(parts, 2)}
    assert {pair: round(distance, 1) for pair, distance in close.items() if distance < LEAST} == {}


def test_the_report_has_the_colours_of_the_page():
    text = SOURCE.read_text()
    other = re.search(r'OTHER = "(#\w+)"', text)
    page = dict(re.findall(r'^  "?([A-Z][\w() ]+)"?: "(#\w{6})"', text, re.MULTILINE)) | {"Other": other[1]}
    assert {name: page[name] for name in FIXED} == FIXED


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_parts_of_a_step_and_tones_of_the_heat_map_can_be_told_apart(theme):
    """The solid fills of the Verdict view and of the critical path; stripes and dots need no colour."""
    blocks = re.findall(r'\.stepscope(\[data-theme="dark"\])? \{([^}]*)\}', SOURCE.with_name("style.css").read_text())
    own = " ".join(text for dark, text in blocks if bool(dark) == (theme == "dark"))
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})\b", own))
    solid = ("compute", "comm", "copy", "host", "python", "unknown")
    close = {(a, b): round(apart(colours[a], colours[b]), 1) for a, b in itertools.combinations(solid, 2)}
    assert {pair: distance for pair, distance in close.items() if distance < LEAST} == {}
    tones = [seen(colours[f"heat-{tone}"])[0] for tone in range(5)]
    steps = [abs(a - b) for a, b in itertools.pairwise(tones)]
    assert min(steps) > 8, "each tone is lighter or darker than the one before"
    assert tones in (sorted(tones), sorted(tones, reverse=True))

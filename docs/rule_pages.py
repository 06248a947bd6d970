# SPDX-License-Identifier: Apache-2.0
"""The pages of the verdict's rules, in English and Chinese, each with a picture of a simulated run in which the rule speaks.

    python docs/rule_pages.py            # write docs/rules
    python docs/rule_pages.py --check    # only say whether they are up to date

Everything follows from the code: title, next step and saving are those of the verdict on that run, limits are those of
`thresholds.toml`; what a rule means and how it is computed is in `docs/rules/rules.toml`. The runs are simulated
(`tests/support/rule_examples.py`), so pages and pictures are the same on every machine.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support")]

import polars as pl  # noqa: E402
from rule_examples import example  # noqa: E402

from stepscope.tables import Tables  # noqa: E402
from stepscope.verdict import Verdict, verdict, words  # noqa: E402
from stepscope.verdict.catalogue import RULES, Rule  # noqa: E402
from stepscope.verdict.finding import Finding  # noqa: E402
from stepscope.verdict.settings import tomllib  # noqa: E402

FOLDER = ROOT / "docs" / "rules"
WIDTH, LEFT, LANE = 760, 110, 22
COLOURS = {
    "operator": "#8da9c4", "api": "#e0a030", "gc": "#c0392b", "mark": "#9b59b6", "python": "#7fb77e",
    "compute": "#3a6ea5", "communication": "#d35400", "copy": "#16a085", "idle": "#d0d4d9",
}  # fmt: skip
HEADINGS = {
    "en": {
        "means": "What it means", "computed": "How it is computed", "next": "What to do", "example": "Example", "limits": "Limits",
        "picture": "a simulated run in which the rule speaks", "other": "[中文]({name}.zh.md)", "saves": "saves",
        "index": "Rules of the verdict", "rule": "rule", "says": "says", "back": "[All rules](README.md)",
        "head": "Each rule has a page: what it means, how it is computed, how to fix it. "
        "`stepscope verdict --config FILE` replaces any limit.",
        "source": "Made by `python docs/rule_pages.py` from simulated runs; times are those of the example.",
    },
    "zh": {
        "means": "含义", "computed": "计算方法", "next": "怎么做", "example": "示例", "limits": "阈值",
        "picture": "触发该规则的模拟运行", "other": "[English]({name}.md)", "saves": "可节省", "index": "诊断规则",
        "rule": "规则", "says": "内容", "back": "[全部规则](README.zh.md)",
        "head": "每条规则一页：含义、计算方法、解决办法。`stepscope verdict --config FILE` 可替换任何阈值。",
        "source": "由 `python docs/rule_pages.py` 根据模拟运行生成；时间为示例中的时间。",
    },
}  # fmt: skip


def pages() -> Iterator[tuple[Path, str]]:
    """Every file of docs/rules that is made, with its text."""
    texts = tomllib.loads((FOLDER / "rules.toml").read_text(encoding="utf-8"))
    found = {}
    for rule in RULES:
        tables = example(rule.name)
        answered = verdict(tables)
        finding = next(one for one in answered.findings if one.rule == rule.name)
        found[rule.name] = finding
        yield FOLDER / "images" / f"{rule.name}.svg", picture(rule.name, tables, answered, finding)
        for lang, ending in (("en", ""), ("zh", ".zh")):
            yield FOLDER / f"{rule.name}{ending}.md", _page(rule, lang, texts[rule.name], finding)
    for lang, ending in (("en", ""), ("zh", ".zh")):
        yield FOLDER / f"README{ending}.md", _index(lang, ending, found)


# Comments of thresholds.toml in Chinese; one that is missing is a KeyError with its text.
LIMITS_ZH = {
    "": "",
    "a longer gap is not the price of a launch": "更长的间隙不是下发的开销",
    "a saving may exceed the idle time it was seen in by no more than this": "节省量超过其所在空闲时间的倍数不得大于此值",
    "a smaller peak is nobody's problem": "更小的峰值不成问题",
    "launching a kernel costs the host 4 to 12 us": "下发一个 kernel 主机需要 4 到 12 us",
    "one wait per step (loss, logging) is customary": "每步一次等待（loss、日志）属于正常",
}


def _page(rule: Rule, lang: str, about: dict[str, str], finding: Finding) -> str:
    head, suffix = HEADINGS[lang], "" if lang == "en" else "_zh"
    saved = f" ({head['saves']} {finding.saved_ms:.1f} ms, {finding.share:.0%})" if finding.saved_ns else ""
    parts = [
        f"# {rule.code} {rule.name}",
        f"{head['back']} · {head['other'].format(name=rule.name)}",
        f"## {head['means']}",
        about[f"means{suffix}"],
        f"## {head['example']}",
        f"![{rule.name}: {head['picture']}](images/{rule.name}.svg)",
        f"> **{finding.text('title', lang)}**{saved}  \n> {finding.text('detail', lang)}",
        f"## {head['computed']}",
        about[f"computed{suffix}"],
        f"## {head['next']}",
        finding.text("next", lang),
    ]
    if limits := _limits(rule.name, lang):
        parts += [f"## {head['limits']}", limits]
    return "\n\n".join(parts) + "\n"


def _limits(rule: str, lang: str) -> str:
    lines = (ROOT / "src" / "stepscope" / "verdict" / "thresholds.toml").read_text(encoding="utf-8").splitlines()
    inside = False
    rows = []
    for line in lines:
        if section := re.match(r"\[([\w-]+)\]", line):
            inside = section[1] == rule
        elif inside and (entry := re.match(r"(\w+) = (\S+)(?: # (.*))?", line)):
            why = entry[3] or ""
            rows.append(f"| `{rule}.{entry[1]}` | {entry[2]} | {why if lang == 'en' else LIMITS_ZH[why]} |")
    return "\n".join(["| | | |", "| --- | ---: | --- |", *rows]) if rows else ""


def _index(lang: str, ending: str, found: dict[str, Finding]) -> str:
    head = HEADINGS[lang]
    rows = [f"| {rule.code} | [{rule.name}]({rule.name}{ending}.md) | {_short(rule.name, lang)} |" for rule in RULES]
    other = "[中文](README.zh.md)" if lang == "en" else "[English](README.md)"
    table = "\n".join([f"| | {head['rule']} | {head['says']} |", "| --- | --- | --- |", *rows])
    return "\n\n".join([f"# {head['index']}", other, head["head"], table, head["source"]]) + "\n"


def _short(rule: str, lang: str) -> str:
    return str(words.texts(lang)["short"][rule])


# Pictures


def picture(rule: str, tables: list[Tables], answered: Verdict, finding: Finding) -> str:
    if rule in ("slow-steps", "variance", "warm-up", "drift", "dynamic-shapes"):
        return _steps(answered)
    if rule == "rank-imbalance":
        return _ranks(answered)
    if rule in ("memory-leak", "fragmentation", "near-full", "workspace"):
        return _memory(tables[0])
    return _timeline(tables[0], finding)


def _svg(height: float, body: list[str]) -> str:
    style = "font-family='sans-serif' font-size='11' fill='#24292f'"
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height:.0f}' viewBox='0 0 {WIDTH} {height:.0f}' {style}>"
    )
    return "\n".join([head, f"<rect width='{WIDTH}' height='{height:.0f}' fill='#ffffff'/>", *body, "</svg>"]) + "\n"


def _rect(x: float, y: float, width: float, height: float, colour: str, *, marked: bool = False, title: str = "") -> str:
    edge = " stroke='#c0392b' stroke-width='1.5'" if marked else ""
    told = f"<title>{escape(title)}</title>" if title else ""
    shape = f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(width, 0.4):.1f}' height='{height:.1f}' fill='{colour}'{edge}"
    return f"{shape}>{told}</rect>" if told else f"{shape}/>"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{escape(text)}</text>"


def _timeline(tables: Tables, finding: Finding) -> str:
    """The step of the first evidence (else one in the middle), at most 24 ms of it: host, computing, communication, copies."""
    steps = tables.steps.sort("start_ns")
    evidence = next((one for one in finding.evidence if one.start_ns is not None), None)
    middle = steps.row(steps.height // 2, named=True)
    start = evidence.start_ns if evidence is not None and evidence.start_ns is not None else middle["start_ns"]
    length = (evidence.end_ns or start) - start if evidence is not None else middle["end_ns"] - start
    wide = int(min(max(2.2 * length, 6e6), max(24e6, 1.1 * length)))
    low = max(start - wide // 4, min(tables.kernels["start_ns"].min() or start, steps["start_ns"].min()))  # type: ignore[type-var]
    high = low + wide
    marked = {(one.table, row) for one in finding.evidence for row in one.rows}
    lanes = [
        ("host", [("ops", "operator"), ("python_calls", "python"), ("marks", "mark"), ("gc_pauses", "gc"), ("api_calls", "api")]),
        ("computing", [("kernels", "compute")]),
        ("copies", [("kernels", "copy")]),
        ("communication", [("collectives", "communication"), ("transfers", "communication")]),
    ]
    body, y = [], 14.0
    for name, sources in lanes:
        drawn = [shape for table, kind in sources for shape in _lane(tables, table, kind, low, high, y, marked)]
        if not drawn and name in ("copies", "communication"):
            continue
        body += [_rect(LEFT, y, WIDTH - LEFT - 10, LANE, "#f3f4f6"), _text(LEFT - 8, y + 15, name, "end"), *drawn]
        y += LANE + 8
    body += _axis(low, high, y)
    return _svg(y + 26, body)


def _lane(tables: Tables, table: str, kind: str, low: int, high: int, y: float, marked: set[tuple[str, int]]) -> Iterator[str]:
    frame = tables[table].with_row_index("row").filter((pl.col("end_ns") > low) & (pl.col("start_ns") < high))
    if table == "kernels":
        copies = pl.col("kind").cast(pl.String).is_in(["memcpy", "memset"])
        frame = frame.filter(copies if kind == "copy" else ~copies)
    if table == "api_calls":  # those that take time; launches are a microsecond each
        frame = frame.filter((pl.col("end_ns") - pl.col("start_ns")) > 5000)
    label = next((name for name in ("name", "message", "task_type") if name in frame.columns), None)
    if table == "gc_pauses" or label is None:
        frame = frame.with_columns(label=pl.lit("garbage collection"))
    else:
        frame = frame.with_columns(label=pl.col(label).cast(pl.String).fill_null(""))
    scale = (WIDTH - LEFT - 10) / (high - low)
    for row, start, end, name in frame.sort("start_ns").select("row", "start_ns", "end_ns", "label").head(600).iter_rows():
        left, right = max(start, low), min(end, high)
        x, width = LEFT + (left - low) * scale, (right - left) * scale
        yield _rect(x, y, width, LANE, COLOURS[kind], marked=(table, row) in marked, title=name)


def _axis(low: int, high: int, y: float) -> Iterator[str]:
    scale = (WIDTH - LEFT - 10) / (high - low)
    pace = next(step for step in (5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9) if (high - low) / step <= 9 or step == 1e9)
    moment = 0.0
    while moment <= high - low:
        x = LEFT + moment * scale
        yield f"<line x1='{x:.1f}' y1='8' x2='{x:.1f}' y2='{y:.1f}' stroke='#d0d4d9' stroke-dasharray='2 3'/>"
        yield _text(x, y + 14, f"{moment / 1e6:g} ms", "end" if x > WIDTH - 30 else "middle")
        moment += pace


def _bars(rows: list[tuple[str, dict[str, float]]]) -> str:
    """Stacked bars, one per row: computing, communication, copies, idle."""
    most = max(sum(parts.values()) for _, parts in rows)
    scale = (WIDTH - LEFT - 90) / most
    body, y = [], 10.0
    for name, parts in rows:
        body.append(_text(LEFT - 8, y + 11, name, "end"))
        x = float(LEFT)
        for part, ms in parts.items():
            colour = COLOURS[{"computing": "compute"}.get(part, part)]
            body.append(_rect(x, y, ms * scale, 14, colour, title=f"{part} {ms:.2f} ms"))
            x += ms * scale
        body.append(_text(x + 6, y + 11, f"{sum(parts.values()):.1f} ms"))
        y += 18
    return _svg(y + 8, body)


def _grouped(parts: dict[str, Any]) -> dict[str, float]:
    kinds = {"computing": 0.0, "communication": 0.0, "copy": 0.0, "idle": 0.0}
    for part, ms in parts.items():
        if part not in ("rank", "step", "total"):
            kinds[part if part in kinds else "idle"] += ms
    return kinds


def _steps(answered: Verdict) -> str:
    return _bars([(f"step {row['step']}", _grouped(row)) for row in answered.partition])


def _ranks(answered: Verdict) -> str:
    return _bars([(f"rank {one.rank}", _grouped({part: ns / 1e6 for part, ns in one.partition.items()})) for one in answered.ranks])


def _memory(tables: Tables) -> str:
    """Lines of what is reserved, allocated and active over time, by component."""
    events = tables.memory_events.sort("time_ns")
    low, high = int(events["time_ns"].min()), int(events["time_ns"].max())  # type: ignore[arg-type]
    totals = ("total_reserved", "total_allocated", "total_active")
    most = max(float(events[name].max() or 0.0) for name in totals)  # type: ignore[arg-type]
    body, y = [], 16.0
    colours = ("#3a6ea5", "#d35400", "#16a085", "#9b59b6", "#c0392b", "#e0a030")
    series = [(component, name) for component in events["component"].cast(pl.String).unique().sort() for name in totals]
    for place, (component, name) in enumerate(series):
        rows = events.filter(pl.col("component").cast(pl.String) == component)
        points = [
            f"{LEFT + (at - low) / max(high - low, 1) * (WIDTH - LEFT - 200):.1f},{170 - 150 * value / most:.1f}"
            for at, value in rows.select("time_ns", name).drop_nulls().iter_rows()
        ]
        colour = colours[place % len(colours)]
        body.append(f"<polyline points='{' '.join(points)}' fill='none' stroke='{colour}' stroke-width='1.5'/>")
        body.append(f"<text x='{WIDTH - 180}' y='{y:.0f}' fill='{colour}'>{escape(component)} {name.removeprefix('total_')}</text>")
        y += 14
    body += [_text(LEFT - 8, 24, f"{most / 2**20:.0f} MiB", "end"), _text(LEFT - 8, 172, "0", "end")]
    return _svg(184, body)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a page is not up to date")
    check = parser.parse_args().check
    stale = []
    for path, text in pages():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print("\n".join(stale) or "all pages are up to date")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

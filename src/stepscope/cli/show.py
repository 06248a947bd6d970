# SPDX-License-Identifier: Apache-2.0
"""How results and progress appear: results on stdout, progress on stderr, nothing but results when piped.

Terminal drawing is imported only where it is used.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    from rich.progress import Progress


def note(text: str) -> None:
    print(text, file=sys.stderr)


@contextlib.contextmanager
def results_in(path: Path | None) -> Iterator[None]:
    """What is printed inside goes into the file, if one is named."""
    if path is None:
        yield
        return
    with path.open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        yield
    note(f"wrote {path}")


def show(frame: pl.DataFrame, *, as_json: bool, title: str = "", lesser: Sequence[str] = ()) -> None:
    """Print a result: JSON lines, a drawn table on a terminal, tab-separated text in a pipe.

    Args:
        frame: the result; its first column of text gets the room that is left.
        as_json: JSON lines.
        title: above a drawn table.
        lesser: columns that a drawn table leaves out where it is too wide, the first of them first.
    """
    if as_json:
        import orjson

        for named in frame.iter_rows(named=True):
            print(orjson.dumps({name: _rounded(value) for name, value in named.items()}).decode())
        return
    if not sys.stdout.isatty():
        print(frame.write_csv(separator="\t", float_precision=3), end="")
        return
    from stepscope.cli.terminal_table import draw

    columns = {name: [_cell(name, value) for value in frame[name].to_list()] for name in frame.columns}
    numeric = {name for name, dtype in frame.schema.items() if dtype.is_numeric()}
    left_out = draw(columns, numeric=numeric, title=title, lesser=lesser)
    if left_out and frame.height:
        note(f"too narrow for {', '.join(left_out)}: --json has them")


def _rounded(value: Any) -> Any:
    """Six decimals: a time in ms to the nanosecond, without what the arithmetic of floats adds to it."""
    return round(value, 6) if isinstance(value, float) else value


def size_text(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{100 * value:.1f} %" if name.endswith("share") else f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


class Stages:
    """Progress of one analysis (its stages) or of several (how many are done); silent unless stderr is a terminal."""

    def __init__(self, captures: int):
        self._many = captures > 1
        self._bar = _bar(captures) if sys.stderr.isatty() else None

    def stage(self, text: str) -> None:
        if self._bar and not self._many:
            self._bar.update(self._bar.task_ids[0], description=text)

    def done(self, name: str) -> None:
        if self._bar:
            self._bar.update(self._bar.task_ids[0], advance=1, description=f"analysed {name}")

    def __enter__(self) -> Stages:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()


def _bar(captures: int) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *([BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}")] if captures > 1 else []),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task("starting", total=captures)
    return bar

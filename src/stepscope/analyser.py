# SPDX-License-Identifier: Apache-2.0
"""Analyse captures: raw or parsed data in, every documented file out, several captures side by side.

Writers are imported when their files are wanted: all of them together take longer than a small capture.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stepscope import prof_output
from stepscope.analysis import quality
from stepscope.analysis.step_range import missing_steps, only_steps
from stepscope.capture import Capture, NewStore, gc_paused, open_all
from stepscope.child_process import ProcessEnded, answers
from stepscope.errors import CaptureError
from stepscope.formats.ascend_capture import prof_folder
from stepscope.formats.ascend_capture.capture_folder import OUTPUT, RECORDS
from stepscope.formats.reader import Progress, bare_name, quiet
from stepscope.native.codec import build_in_background, describe_codec
from stepscope.render.formulas import mark_formulas
from stepscope.render.json_text import indent
from stepscope.simplify import simplify
from stepscope.tables import Facts, Tables
from stepscope.tables.whole_folder import replacing_folder

EXPORTS = ("text", "db", "perfetto", "kineto", "parquet")
PROF_OUTPUT = "stepscope_output"  # in a PROF folder, beside what the vendor's tool writes there
# Peak memory by byte of source data, from benchmarks/run.py; decides how many captures run at once under --max-memory.
MEMORY_PER_SOURCE_BYTE = 2.5
_SMALL_BYTES = 100 << 20
_KERNELS_PAY_SECONDS = 1.0  # an analysis of this length makes up for building the kernels after a few more


class Result(NamedTuple):
    """How the analysis of one capture went."""

    path: str
    ok: bool
    error: str | None
    folder: str | None = None
    files: tuple[str, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()  # what was lost or not understood, one line each
    unmet: str | None = None  # what the request asked for and the capture does not have


@dataclass(frozen=True)
class Request:
    """What to do with each capture."""

    exports: tuple[str, ...] | None = None  # None: what the capture itself asks for
    out: Path | None = None
    source: str = "auto"
    parallel: bool = True
    simplify: bool = True
    progress: Progress = quiet
    steps: tuple[int, ...] = ()  # only these, counted from 1 at the first recorded one
    pretty: bool = False  # JSON over several lines
    safe_csv: bool = False  # mark cells that a spreadsheet would take for formulas
    max_memory: int | None = None  # bytes; a packed file that gives more is refused


def analyse(
    profiler_path: str,
    max_process_number: int | None = None,
    export_type: str | Sequence[str] | None = None,
    *,
    safe_csv: bool = False,
) -> list[Result]:
    """Analyse the capture at `profiler_path`, or every capture directly below it, in parallel processes.

    Wrong values of the two options fall back to their defaults with a warning. A capture that fails does not stop
    the others. Results are written to `ASCEND_PROFILER_OUTPUT` in each capture, logs to `logs`.

    Args:
        profiler_path: a `*_ascend_pt` folder or a folder of such folders.
        max_process_number: captures analysed at the same time; unless given, one per core where all are below 100 MB, else half
            as many.
        export_type: `text` (json, csv and both databases), `db` (databases only) or a list of them; by default what
            each capture's profiler_info.json says.
        safe_csv: put an apostrophe before text cells of csv files that a spreadsheet would run as formulas.

    Returns:
        One `Result` per capture.
    """
    captures = open_all(profiler_path)
    request = Request(exports=_exports(export_type), safe_csv=safe_csv)
    return analyse_captures(captures, request, jobs=_jobs(max_process_number, default_jobs(captures)))


def analyse_captures(
    captures: Sequence[Capture], request: Request, *, jobs: int, on_result: Callable[[Result], None] = lambda result: None
) -> list[Result]:
    """Analyse each capture; one alone in this process, several in worker processes."""
    _refuse_collisions(captures, request)
    results = _results(captures, request, min(jobs, len(captures)), on_result)
    if sum(result.seconds for result in results) > _KERNELS_PAY_SECONDS:
        build_in_background()
    return results


def _results(captures: Sequence[Capture], request: Request, jobs: int, on_result: Callable[[Result], None]) -> list[Result]:
    if jobs <= 1:
        return [_notify(_guarded(capture, request), on_result) for capture in captures]
    paths = [str(capture.path) for capture in captures]
    # Where every core has a capture of its own, threads would only wait for one another.
    cores = len(os.sched_getaffinity(0))
    request = replace(request, parallel=request.parallel and 2 * jobs <= cores)
    threads = {"POLARS_MAX_THREADS": str(max(1, cores // jobs))}
    wanted = _to_json(request)
    done: dict[int, Result] = {}
    for index, answer in answers("stepscope.worker:serve_captures", [{"path": path, **wanted} for path in paths], jobs, threads):
        try:
            result = _result(answer())
        except ProcessEnded as problem:
            result = Result(paths[index], False, _lost_process(paths[index], str(problem)))
        done[index] = _notify(result, on_result)
    return [done[index] for index in range(len(captures))]


def analyse_path(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Analyse one capture as another process asks for it: what `analyse_captures` sends, and the result as JSON."""
    request = Request(
        exports=None if wanted["exports"] is None else tuple(wanted["exports"]),
        out=None if wanted["out"] is None else Path(wanted["out"]),
        source=wanted["source"],
        parallel=wanted["parallel"],
        simplify=wanted["simplify"],
        steps=tuple(wanted["steps"]),
        pretty=wanted["pretty"],
        safe_csv=wanted["safe_csv"],
        max_memory=wanted["max_memory"],
    )
    try:
        capture = open_all(wanted["path"], source=request.source)[0]
    except (CaptureError, OSError) as problem:  # it was removed meanwhile
        return Result(wanted["path"], False, str(problem))._asdict()
    return _guarded(capture, request)._asdict()


def _to_json(request: Request) -> dict[str, Any]:
    content = {item.name: getattr(request, item.name) for item in fields(request) if item.name != "progress"}
    return {**content, "out": None if request.out is None else str(request.out)}


def _result(content: Mapping[str, Any]) -> Result:
    return Result(**{**content, "files": tuple(content["files"]), "notes": tuple(content["notes"])})


def _lost_process(path: str, how: str) -> str:
    problem = CaptureError(
        "the analysis process ended before it was done",
        where=path,
        cause=how,
        fix="look for a lack of memory (dmesg), and analyse this capture alone with --max-memory",
    )
    return str(problem)


def default_jobs(captures: Sequence[Capture]) -> int:
    """How many captures to analyse at once: small ones keep one core busy each, large ones two."""
    cores = len(os.sched_getaffinity(0))
    if all(source_bytes(capture) < _SMALL_BYTES for capture in captures):
        return cores
    return max(1, cores // 2)


def jobs_within(captures: Sequence[Capture], jobs: int, max_memory: int | None) -> int:
    """How many of these captures may run at once without passing `max_memory` bytes."""
    if max_memory is None:
        return jobs
    largest = max(source_bytes(capture) for capture in captures)
    return max(1, min(jobs, int(max_memory / max(1.0, largest * MEMORY_PER_SOURCE_BYTE))))


def source_bytes(capture: Capture) -> int:
    return sum(path.stat().st_size for path in capture.source_files())


def export(tables: Tables, exports: Iterable[str], folder: Path, progress: Progress, *, parallel: bool = True) -> list[Path]:
    """Write the chosen files, two tasks at a time, long ones first: the short ones at the end let both threads end together."""
    with ThreadPoolExecutor(2 if parallel else 1) as pool:
        running = [pool.submit(task) for task in _export_tasks(tables, set(exports), folder, progress)]
        return [path for task in running for path in task.result()]


def _export_tasks(tables: Tables, wanted: set[str], folder: Path, progress: Progress) -> Iterator[Callable[[], list[Path]]]:
    # MindSpore makes a database only when asked for one.
    with_databases = bool(wanted & ({"db"} if tables.facts.framework == "mindspore" else {"text", "db"}))
    if with_databases:
        yield partial(_profiler_db, tables, folder, progress)
    texts: list[Callable[[], list[Path]]] = []
    if "text" in wanted:
        from stepscope.export.text_files import outputs_of, write_text

        *others, timeline = outputs_of(tables.facts)
        progress("writing json and csv")
        texts = [partial(write_text, tables, folder, [output]) for output in (timeline, *others)]
    yield from texts[:1]
    if with_databases:
        yield partial(_analysis_db, tables, folder)
    yield from texts[1:]
    if "perfetto" in wanted:
        yield partial(_perfetto, tables, folder, progress)
    if "kineto" in wanted:
        yield partial(_kineto, tables, folder, progress)
    if "parquet" in wanted:
        yield partial(_parquet, tables, folder, progress)


def _export_prof(
    stamp: str, tables: Tables, exports: Iterable[str], folder: Path, progress: Progress, *, parallel: bool = True
) -> list[Path]:
    """For a PROF folder that is a capture of its own: the files that the vendor's tool makes of it.

    Their names carry the time of the collection (`stamp`), so that a second analysis replaces the first.
    """
    wanted = set(exports)
    written = []
    if wanted & {"text", "db"}:
        from stepscope.export.msprof import write_msprof

        progress("writing the vendor's files")
        written = write_msprof(tables, folder, stamp)
    return [*written, *export(tables, wanted - {"text", "db"}, folder, progress, parallel=parallel)]


def _perfetto(tables: Tables, folder: Path, progress: Progress) -> list[Path]:
    from stepscope.export.trace.perfetto import write_perfetto

    progress("writing the Perfetto trace")
    return [write_perfetto(tables, folder / "perfetto_trace.json.gz")]


def _kineto(tables: Tables, folder: Path, progress: Progress) -> list[Path]:
    from stepscope.export.trace.kineto import write_kineto

    progress("writing the Kineto trace")
    return [write_kineto(tables, folder / "kineto.pt.trace.json.gz")]


def _parquet(tables: Tables, folder: Path, progress: Progress) -> list[Path]:
    from stepscope.export.parquet import write_parquet

    progress("writing Parquet")
    return write_parquet(tables, folder / "parquet")


def _profiler_db(tables: Tables, folder: Path, progress: Progress) -> list[Path]:
    from stepscope.export.ascend_db import write_profiler_db

    progress("writing the databases")
    path = folder / _database_names(tables.facts)[0]
    write_profiler_db(tables, path)
    return [path]


def _analysis_db(tables: Tables, folder: Path) -> list[Path]:
    from stepscope.export.analysis_db import write_analysis_db

    path = folder / _database_names(tables.facts)[1]
    return [path] if write_analysis_db(tables, path) else []


def _database_names(facts: Facts) -> tuple[str, str]:
    if facts.framework == "mindspore":
        from stepscope.export.mindspore import database_names

        return database_names(facts.rank)
    return (f"ascend_pytorch_profiler_{facts.rank}.db" if facts.rank >= 0 else "ascend_pytorch_profiler.db"), "analysis.db"


def _guarded(capture: Capture, request: Request) -> Result:
    """The border between one capture and the others: whatever goes wrong here stays here."""
    started = time.perf_counter()
    log = None
    try:
        target = _target(capture, request)
        log = _log_file(target.parent if target.name == OUTPUT else target)
        files, notes, unmet = _analyse(capture, request, target)
    except CaptureError as problem:
        _log(log, logging.ERROR, str(problem))
        return Result(str(capture.path), False, str(problem), seconds=time.perf_counter() - started)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - the worker border; a panic of the columnar engine is not an Exception
        _log(log, logging.ERROR, "analysis failed", problem)
        where = f"\n  where: the traceback is in {log}" if log else ""
        return Result(
            str(capture.path), False, f"{type(problem).__name__}: {problem}{where}", seconds=time.perf_counter() - started
        )
    seconds = time.perf_counter() - started
    _log(log, logging.INFO, f"analysed in {seconds:.2f} s, {len(files)} files in {target}; engine: {describe_codec()}")
    for line in notes:
        _log(log, logging.WARNING, line)
    return Result(str(capture.path), True, None, str(target), tuple(files), seconds, notes, unmet)


def _analyse(capture: Capture, request: Request, target: Path) -> tuple[list[str], tuple[str, ...], str | None]:
    databases_only = request.exports is not None and set(request.exports) <= {"db"}
    capture = Capture(capture.files, source=request.source, databases_first=databases_only)
    tables, store = _load(capture, request)
    unmet = missing_steps(tables, request.steps)
    shown = only_steps(tables, request.steps) if request.steps else tables
    exports = request.exports or shown.facts.export_type or ("text",)
    with ThreadPoolExecutor(1) as beside:
        writing = beside.submit(store.write, tables) if store is not None else None
        names = _write_exports(capture, shown, exports, request, target)
        shown = shown.with_quality(*(writing.result() if writing is not None else ()))
    # Sources are removed only here: the store is of them.
    if request.out is not None:
        _copy_settings(capture, target.parent)
    elif request.simplify and capture.source in RECORDS and not capture.files.is_prof:
        simplify(capture.files, everything=tables.facts.data_simplification, from_raw=capture.source == "raw")
        if capture.source == "raw" and prof_output.is_wanted(tables.facts):
            written = prof_output.write(capture.files, exports, request.progress, parallel=request.parallel)
            if request.safe_csv:
                mark_formulas([path for path in written if path.suffix == ".csv"])
    return names, tuple(_notes(shown)), unmet


def _load(capture: Capture, request: Request) -> tuple[Tables, NewStore | None]:
    """The tables, and the store to write while they are exported; where nothing runs side by side it is written first."""
    # With --out the capture stays untouched, and the store would lie inside it.
    keep = request.out is None
    if keep and not request.parallel:
        return capture.load(request.progress, parallel=False, max_memory=request.max_memory), None
    tables, store = capture.load_unstored(request.progress, parallel=request.parallel, max_memory=request.max_memory)
    return tables, store if keep else None


def _write_exports(capture: Capture, tables: Tables, exports: Sequence[str], request: Request, target: Path) -> list[str]:
    """Write the files of the capture into `target`, all or none; return their names."""
    if target.is_symlink():
        raise CaptureError("the output folder is a symbolic link", where=str(target), fix="remove the link or pass --out DIR")
    try:
        with replacing_folder(target) as new, gc_paused():
            work = partial(_export_prof, prof_folder.stamp(capture.files)) if capture.files.is_prof else export
            written = _named_as(target, new, lambda: work(tables, exports, new, request.progress, parallel=request.parallel))
            if request.pretty:
                indent([path for path in written if path.suffix == ".json"])
            if request.safe_csv:
                mark_formulas([path for path in written if path.suffix == ".csv"])
            names = sorted(str(path.relative_to(new)) for path in written)
            if target.name == OUTPUT:
                (new / "analyse.done").touch(mode=0o640)
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CaptureError(
            "no space left while writing the results",
            where=str(target),
            cause=os.strerror(problem.errno),
            fix="free some space or pass --out DIR on another disk; what was there before is untouched",
        ) from problem
    return names


def _notes(tables: Tables) -> Iterable[str]:
    for found in quality.occurrences(tables.quality):
        yield f"{found.issue.severity}: {found.sentence()} [{found.where()}]"


def _named_as(target: Path, new: Path, work: Callable[[], list[Path]]) -> list[Path]:
    """Errors name the folder the user knows, not the one that is being built."""
    try:
        return work()
    except CaptureError as problem:
        problem.where = (problem.where or str(new)).replace(str(new), str(target))
        raise


def _target(capture: Capture, request: Request) -> Path:
    """Where the results go. Parsed files that are the only source are never written over."""
    folder = capture.path if capture.path.is_dir() else None
    name = capture.path.name if folder else bare_name(capture.path)
    if request.out is not None:
        return request.out / name / OUTPUT if folder and not capture.files.is_prof else request.out / name
    if folder is None:
        target = capture.path.parent / f"{name}_stepscope"
    elif capture.files.is_prof:
        target = folder / PROF_OUTPUT
    elif capture.source in RECORDS:
        target = folder / OUTPUT
    elif capture.source == "store":
        raise CaptureError(
            "this capture consists of tables only, and results in its folder would be taken for the capture",
            where=str(folder),
            fix="pass --out DIR",
        )
    else:
        raise CaptureError(
            "only the parsed files of this capture are left, and the results would replace them",
            where=str(folder / OUTPUT),
            fix="pass --out DIR to derive all files anew in another folder",
        )
    if not os.access(target.parent, os.W_OK):
        raise CaptureError(
            "the capture's folder is read-only", where=str(target.parent), cause="no permission to write", fix="pass --out DIR"
        )
    return target


def _copy_settings(capture: Capture, folder: Path) -> None:
    """profiler_*.json beside the results, so that the folder is a capture of its own."""
    if capture.path.is_dir():
        for path in capture.path.glob("profiler_*.json"):
            shutil.copyfile(path, folder / path.name)
            os.chmod(folder / path.name, 0o640)


def _refuse_collisions(captures: Sequence[Capture], request: Request) -> None:
    if request.out is None:
        return
    targets: dict[Path, Capture] = {}
    for capture in captures:
        target = _target(capture, request)
        if target in targets:
            raise CaptureError(
                "two captures would be written to the same folder",
                where=str(target),
                cause=f"{targets[target].path} and {capture.path} have the same name",
                fix="analyse them with two --out folders",
            )
        targets[target] = capture


def _notify(result: Result, on_result: Callable[[Result], None]) -> Result:
    on_result(result)
    return result


def _exports(export_type: Any) -> tuple[str, ...] | None:
    if export_type is None:
        return None
    words = [export_type] if isinstance(export_type, str) else export_type
    if not isinstance(words, (list, tuple, set)) or not words or not set(words) <= {"text", "db"}:
        warnings.warn(
            f"export_type {export_type!r} is not text, db or a list of them; the capture's own setting is used", stacklevel=3
        )
        return None
    return tuple(dict.fromkeys(words))


def _jobs(max_process_number: Any, default: int) -> int:
    cores = os.cpu_count() or 1
    if max_process_number is None:
        return default
    if not isinstance(max_process_number, int) or isinstance(max_process_number, bool) or max_process_number < 1:
        warnings.warn(f"max_process_number {max_process_number!r} is not a positive whole number; {default} is used", stacklevel=3)
        return default
    if max_process_number > cores:
        warnings.warn(f"max_process_number {max_process_number} is more than the {cores} cores; {cores} is used", stacklevel=3)
        return cores
    return max_process_number


def _log_file(folder: Path) -> Path:
    return folder / "logs" / f"profiler_{time.strftime('%Y%m%d%H%M%S')}_{os.getpid()}_Analyse.log"


def _log(path: Path | None, level: int, message: str, problem: BaseException | None = None) -> None:
    if path is None:
        return
    info = (type(problem), problem, problem.__traceback__) if problem else None
    record = logging.LogRecord("stepscope", level, __file__, 0, message, None, info)
    line = logging.Formatter("%(asctime)s %(levelname)s %(message)s").format(record)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{line}\n")
        path.chmod(0o640)
    except OSError:
        pass  # the result says the same, and a log that cannot be written must not hide it

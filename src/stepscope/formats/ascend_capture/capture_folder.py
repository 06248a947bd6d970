# SPDX-License-Identifier: Apache-2.0
"""A capture folder of torch_npu, MindSpore or stepscope: raw records, device data and parsed output, as far as they exist."""

from __future__ import annotations

import os
import re
from pathlib import Path

from stepscope.errors import CaptureError
from stepscope.formats import mindspore
from stepscope.formats.ascend_capture import prof_folder
from stepscope.formats.reader import CaptureFiles, Options, Reader
from stepscope.tables import Facts, Tables, issues, lost

OUTPUT = "ASCEND_PROFILER_OUTPUT"
RECORDS = ("raw", "parsed")  # sources with the framework's own records
_OF_FRAMEWORK = re.compile(r".*_ascend_(pt|ms)|profiler_(info|metadata).*\.json")  # what a framework's profiler leaves
_TEXT_SIGNS = (
    "trace_view.json", "trace_view.json.gz", "kernel_details.csv", "operator_details.csv", "memory_record.csv",
    "communication.json",
)  # fmt: skip
# Figures without events: a database says more.
_FIGURE_SIGNS = ("step_trace_time.csv", "communication_matrix.json", "op_statistic.csv", "api_statistic.csv")
_SUFFIX = re.compile(r"_ascend_(pt|ms)$")
_NUMBERED = re.compile(r"(?P<worker>.+)_(?P<span>\d+(?:\.\d+)?)")
_RANK = re.compile(r"(?:profiler_info|ascend_(?:pytorch|mindspore)_profiler)_(\d+)\.(?:json|db)")


def has_text(files: CaptureFiles) -> bool:
    output = files.output
    signs = _TEXT_SIGNS if files.databases else (*_TEXT_SIGNS, *_FIGURE_SIGNS)
    return output is not None and any((output / name).is_file() for name in signs)


def choose(files: CaptureFiles, source: str) -> str:
    """The form to read: the requested one, else the best available."""
    forms = {prof: prof_folder.forms(prof) for prof in files.profs}
    available = {
        "raw": bool(files.framework or any(forms.values())),
        "parsed": any("parsed" in form for form in forms.values()),
        "text": has_text(files),
        "db": bool(files.databases),
    }
    if source != "auto":
        if not available[source]:
            names = [name for name, present in available.items() if present]
            raise CaptureError(
                f"no {source} data", where=str(files.root), fix=f"use --source {names[0]}" if names else "capture again"
            )
        return source
    if available["raw"] and all(form and form[0] != "part" for form in forms.values()):
        return "raw"
    for name in ("text", "db", "raw"):
        if available[name]:
            return name
    raise CaptureError(
        "nothing readable in this capture",
        where=str(files.root),
        cause="the folder has the right name but no data",
        fix="capture again",
    )


def _claims(path: Path) -> CaptureFiles | None:
    if path.name.startswith("."):
        return None
    if path.is_dir():
        return _folder(path.parent if path.name == OUTPUT else path)
    return _folder(path.parent.parent) if path.parent.name == OUTPUT and path.is_file() else None


def _folder(path: Path) -> CaptureFiles | None:
    try:
        # A run has thousands of these: what the listing says already is not asked for again.
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        # On some file systems the listing does not say what an entry is, and to ask for it may fail.
        linked = tuple(path / entry.name for entry in entries if entry.is_symlink())
        real = {entry.name: path / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    except OSError:
        return None
    names = (path.name, *(entry.name for entry in entries))
    if not (real.keys() & {"FRAMEWORK", OUTPUT} or any(map(_OF_FRAMEWORK.fullmatch, names))):
        return None  # a folder in which the vendor's command line left its PROF folders: each is a capture of its own
    found = CaptureFiles(
        root=path,
        framework=real.get("FRAMEWORK"),
        profs=tuple(entry for name, entry in sorted(real.items()) if prof_folder.PROF.match(name)),
        output=real.get(OUTPUT),
        linked=linked,
    )
    return found if found.framework or found.profs or found.output else None


def _names(files: CaptureFiles) -> tuple[str, str]:
    """Worker and span: the rank that the files name is the worker; only without one does the name of the folder tell."""
    numbered = _NUMBERED.fullmatch(_SUFFIX.sub("", files.root.name))
    rank = _recorded_rank(files)
    if rank is None:
        return (numbered["worker"], numbered["span"]) if numbered else (files.root.name, "1")
    # `rank_3_ascend_pt` of rank 3: its number is the rank, not the turn.
    return rank, numbered["span"] if numbered and numbered["span"] != rank else "1"


def _recorded_rank(files: CaptureFiles) -> str | None:
    try:
        names = sorted(os.listdir(files.root)) + [path.name for path in files.databases]
    except OSError:
        return None
    return next((match[1] for match in map(_RANK.fullmatch, names) if match), None)


def _source_files(files: CaptureFiles, options: Options) -> list[Path]:
    chosen = sorted(files.root.glob("profiler_*.json"))
    if options.source in RECORDS:
        chosen += sorted(files.framework.glob("*")) if files.framework else []
        for prof in files.profs:
            chosen += prof_folder.source_files(prof, options)
    elif options.source == "text" and files.output:
        chosen += [path for path in files.output.iterdir() if path.suffix in (".json", ".csv", ".gz")]
    elif files.output:
        chosen += sorted(files.output.glob("*.db"))
    return [path for path in chosen if path.is_file()]


def _read(files: CaptureFiles, options: Options) -> Tables:
    from stepscope.formats.ascend.profiler_info import read_capture_facts

    facts, lost_info = read_capture_facts(files.root, raw=options.source in RECORDS)
    if files.framework and mindspore.is_mindspore(files.framework):
        facts = facts.replace(framework="mindspore", device_kind=facts.device_kind or ("npu" if files.profs else "cpu"))
    if options.source in RECORDS:
        from stepscope.formats.ascend_capture.records import read_capture_records

        return read_capture_records(files, facts, options).with_quality(lost_info)
    options.progress(f"reading {files.output}")
    return _read_output(files, facts, options.source).with_quality(lost_info)


def _read_output(files: CaptureFiles, facts: Facts, source: str) -> Tables:
    assert files.output is not None
    if source == "text":
        from stepscope.formats.ascend import text

        return text.read(files.output, facts)
    from stepscope.formats.ascend.db.read import read

    first, *others = files.databases
    return read(first, facts).with_quality(lost(issues.FURTHER_FILES, str(files.output), len(others), first.name + " was read"))


READER = Reader(
    name="capture_folder",
    accepts="a *_ascend_pt folder",
    claims=_claims,
    read=_read,
    source_files=_source_files,
    choose=choose,
    names=_names,
    layouts=(
        f"<run>/<worker>_<span>/{OUTPUT}/",
        f"<run>/<worker>_<span>_ascend_pt/{OUTPUT}/ (also _ascend_ms)",
        "<run>/<any name>/FRAMEWORK/ (raw data)",
    ),
)

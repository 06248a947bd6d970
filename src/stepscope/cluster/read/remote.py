# SPDX-License-Identifier: Apache-2.0
"""Captures on object storage (s3://, obs://, gs://, hdfs:// and whatever else fsspec reads).

Which captures there are is found on a skeleton: the same folders with empty files, and the beginnings of JSON files. A capture is
copied to a temporary folder when it is read, and gone afterwards.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from stepscope.errors import CaptureError

DEPTH = 8  # below the root, files included: captures lie at most five levels deep
HEAD = 1 << 16  # bytes of a JSON file that tell what it is
SMALL = 1 << 16  # files up to this size are copied whole
MOST_FILES = 1_000_000
_PACKAGES = {"s3": "s3fs", "obs": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hdfs": "pyarrow with a Hadoop client", "az": "adlfs"}


def is_remote(path: object) -> bool:
    return "://" in str(path)


def in_this_process_only(path: str) -> bool:
    """Whether other processes do not see the same files."""
    return path.startswith("memory://")


def _open(url: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    scheme = url.partition("://")[0]
    try:
        fsspec: Any = import_module("fsspec")
        if scheme == "obs" and scheme not in fsspec.available_protocols():
            return _object_storage_of_huawei(url)
        fs, path = fsspec.core.url_to_fs(url)
    except ImportError as problem:
        raise CaptureError(
            f"{scheme}:// needs a package that is not installed", where=url, cause=str(problem),
            fix=f"pip install 'stepscope[remote]' {_PACKAGES.get(scheme, '')}".rstrip(),
        ) from problem  # fmt: skip
    except ValueError as problem:
        raise CaptureError(
            "unknown kind of address", where=url, cause=str(problem), fix="use s3://, obs://, gs:// or hdfs://"
        ) from problem
    fs.invalidate_cache()
    return fs, path


def _object_storage_of_huawei(url: str) -> tuple[Any, str]:
    """OBS speaks the protocol of S3, at an address of its own."""
    endpoint = os.environ.get("OBS_ENDPOINT") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        raise CaptureError(
            "the address of the object storage is not known", where=url,
            fix="set OBS_ENDPOINT, such as https://obs.cn-north-4.myhuaweicloud.com, and AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
        )  # fmt: skip
    fs = import_module("fsspec").filesystem("s3", client_kwargs={"endpoint_url": endpoint})
    fs.invalidate_cache()
    return fs, url.partition("://")[2]


def _files(url: str) -> tuple[Any, str, dict[str, dict[str, Any]]]:
    """The file system, the path, and facts about every file at or below it, by path."""
    fs, path = _open(url)
    try:
        path = path.rstrip("/") or path
        found = fs.find(path, maxdepth=DEPTH, detail=True)
    except FileNotFoundError:
        found = {}
    except OSError as problem:
        raise CaptureError(
            "the storage cannot be read", where=url, cause=str(problem) or type(problem).__name__,
            fix="check the address and the credentials",
        ) from problem  # fmt: skip
    if not found:
        raise CaptureError("no such file or folder", where=url, fix="check the address; give the folder that holds all ranks")
    if len(found) > MOST_FILES:
        raise CaptureError(f"more than {MOST_FILES:,} files", where=url, fix="give a folder further down")
    return fs, path, dict(sorted(found.items()))


def sizes(url: str) -> dict[str, int]:
    """Size of each file of a capture, by name."""
    _, _, found = _files(url)
    return {name: int(facts.get("size") or 0) for name, facts in found.items()}


def fingerprint(url: str) -> list[list[Any]]:
    """What changes when a file of a capture does: name, size and the storage's own mark."""
    _, path, found = _files(url)
    marks = ("ETag", "etag", "md5Hash", "LastModified", "updated", "mtime", "created")
    return [
        [posixpath.relpath(name, path), int(facts.get("size") or 0), next((str(facts[key]) for key in marks if facts.get(key)), "")]
        for name, facts in found.items()
    ]


@contextlib.contextmanager
def skeleton(url: str) -> Iterator[Path]:
    """A folder here with the names of what is there, and the beginnings of JSON files."""
    fs, path, found = _files(url)
    with tempfile.TemporaryDirectory(prefix="stepscope-") as folder:
        root = Path(folder) / (posixpath.basename(path) or "root")
        for name, facts in found.items():
            target = root if name == path else _inside(root, posixpath.relpath(name, path), url)
            target.parent.mkdir(parents=True, exist_ok=True)
            size = int(facts.get("size") or 0)
            if ".json" in name and not name.endswith((".pt.trace.json", ".pt.trace.json.gz")):
                target.write_bytes(fs.cat_file(name, start=0, end=min(size, HEAD)) if size else b"")
            elif size <= SMALL and name.endswith((".start_info", ".end_info", ".txt")):
                target.write_bytes(fs.cat_file(name))
            else:
                target.touch()
        yield root


@contextlib.contextmanager
def copied(url: str) -> Iterator[Path]:
    """The capture at an address, here for as long as it is read."""
    fs, path, found = _files(url)
    with tempfile.TemporaryDirectory(prefix="stepscope-") as folder:
        root = Path(folder) / posixpath.basename(path)
        for name in found:
            target = root if name == path else _inside(root, posixpath.relpath(name, path), url)
            target.parent.mkdir(parents=True, exist_ok=True)
            fs.get_file(name, str(target))
        yield root


def _inside(root: Path, relative: str, url: str) -> Path:
    target = root / relative
    if ".." in Path(relative).parts or os.path.isabs(relative):
        raise CaptureError("a file's name leads out of its folder", where=f"{url}: {relative}", fix="rename it")
    return target


def join(url: str, relative: str) -> str:
    return url if relative in ("", ".") else f"{url.rstrip('/')}/{relative}"

# SPDX-License-Identifier: Apache-2.0
"""Digests by a Dask cluster that runs already: one task per capture, whatever started the workers (Slurm, Kubernetes, ssh).

Dask moves a lost worker's tasks to others; a capture that took three workers along is given up. Workers see paths, not data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from stepscope import __version__
from stepscope.cluster.read.memory import estimate
from stepscope.cluster.read.reading import Options, Outcome, read_digests, read_small_files
from stepscope.errors import CaptureError
from stepscope.tables.cluster import DIGEST_VERSION

WAIT_SECONDS = 30  # for the scheduler, and for a first worker
RETRIES = 2


def version() -> list[Any]:
    """What must be the same on all machines for digests to mean the same."""
    return [__version__, DIGEST_VERSION]


def read_on_worker(path: str, options: Options, wanted: list[Any]) -> Outcome:
    """The digest of one capture; called on a worker."""
    if version() != wanted:
        return Outcome(path, None, error=f"the worker has stepscope {version()[0]}, digests of version {version()[1]}")
    return read_digests([path], options)[0]


def read_dask(
    paths: Sequence[str],
    options: Options,
    scheduler: str,
    mapping: Sequence[tuple[str, str]] = (),
    memory: int | None = None,
) -> Iterator[Outcome]:
    """Digests by the workers of a scheduler, as they become ready.

    Args:
        scheduler: address, such as tcp://head:8786.
        mapping: prefixes of paths here and what they are on the workers.
        memory: bytes that a task may need beside others; larger ones run one per worker. By default what a worker's threads share.

    Raises:
        CaptureError: Dask is not installed, no scheduler or worker answers, or a worker has another version.
    """
    try:
        dask: Any = import_module("distributed")
    except ImportError as problem:
        raise CaptureError("--scheduler needs Dask", cause=str(problem), fix="pip install 'stepscope[cluster]'") from problem
    try:
        client = dask.Client(scheduler, timeout=WAIT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as problem:
        raise CaptureError(
            "no Dask scheduler answers", where=scheduler, cause=str(problem) or type(problem).__name__,
            fix="check the address that `dask scheduler` printed, such as tcp://head:8786",
        ) from problem  # fmt: skip
    with client:
        # As every engine does, so that the output is the same.
        small = read_small_files(paths, options)
        yield from small
        done = {outcome.path for outcome in small}
        paths = [path for path in paths if path not in done]
        workers = _check_workers(client, scheduler)
        share = memory or min(int(one["memory_limit"] or 0) // max(one["nthreads"], 1) for one in workers.values()) or None
        there = {_mapped(path, mapping): path for path in paths}
        large = [path for path, here in there.items() if share is not None and estimate(here) > share]
        beside = [path for path in there if path not in set(large)]
        given: dict[str, Any] = {"options": options, "wanted": version(), "retries": RETRIES, "pure": False}
        futures = dict(zip(client.map(read_on_worker, beside, **given), beside, strict=True)) if beside else {}
        try:
            for future in dask.as_completed(list(futures), loop=client.loop):
                yield _outcome(future, there[futures[future]])
            for begin in range(0, len(large), len(workers)):
                part = large[begin : begin + len(workers)]
                alone = {
                    client.submit(read_on_worker, path, workers=[address], allow_other_workers=True, **given): path
                    for path, address in zip(part, workers, strict=False)
                }
                futures.update(alone)
                for future in dask.as_completed(list(alone), loop=client.loop):
                    yield _outcome(future, there[alone[future]])
        finally:
            # After an interrupt: what is done is kept beside the captures, the rest need not be done.
            client.cancel([future for future in futures if not future.done()])


def _check_workers(client: Any, scheduler: str) -> dict[str, Any]:
    """The workers by address; each must have the same program."""
    try:
        client.wait_for_workers(1, timeout=WAIT_SECONDS)
        found = client.run(version, on_error="return")
    except (OSError, TimeoutError) as problem:
        raise CaptureError(
            "the Dask cluster has no workers", where=scheduler, cause=f"waited {WAIT_SECONDS} s",
            fix=f"start some: dask worker {scheduler}",
        ) from problem  # fmt: skip
    wrong = {address: answer for address, answer in found.items() if answer != version()}
    if wrong:
        address, answer = next(iter(sorted(wrong.items())))
        said = f"stepscope {answer[0]}, digests of version {answer[1]}" if isinstance(answer, list) else str(answer)
        raise CaptureError(
            f"{len(wrong)} of {len(found)} Dask workers have another stepscope, or none", where=address, cause=said,
            fix=f"install stepscope {__version__} in the workers' environment",
        )  # fmt: skip
    return dict(client.scheduler_info(n_workers=-1)["workers"])


def _mapped(path: str, mapping: Sequence[tuple[str, str]]) -> str:
    for here, there in mapping:
        if path == here.rstrip("/") or path.startswith(here.rstrip("/") + "/"):
            return there.rstrip("/") + path[len(here.rstrip("/")) :]
    return path


def _outcome(future: Any, path: str) -> Outcome:
    """A result under the path that it has here."""
    problem = future.exception()
    if problem is not None:
        return Outcome(
            path, None, error=f"given up after {RETRIES + 1} tries on Dask workers ({type(problem).__name__}: {problem})"
        )
    done: Outcome = future.result()
    return Outcome(path, done.data, done.rank, done.error)

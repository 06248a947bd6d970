# SPDX-License-Identifier: Apache-2.0
"""Record the captures of this folder anew: `python tests/captures/record.py [NAME …]`, then `make bless`.

Needs torch and a compiler (for the simulated NPU) and, for MindSpore's capture, an environment with MindSpore
(`.venv-mindspore`, or STEPSCOPE_MINDSPORE_PYTHON). Recording runs in a folder of fixed name with links to Python and
its packages, so that no path of the machine gets into a capture; what comes out is searched for such traces.
"""

from __future__ import annotations

import argparse
import getpass
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
ROOM = Path("/tmp/stepscope-captures")
MINDSPORE = Path(os.environ.get("STEPSCOPE_MINDSPORE_PYTHON", REPOSITORY / ".venv-mindspore" / "bin" / "python"))
LARGEST = 60_000  # bytes of one archive


def run(workload: str, folder: Path, python: Path = Path(sys.executable), **environment: str) -> subprocess.Popen[bytes]:
    """Start a workload of train.py with links in place of the paths of this machine."""
    where = "import sys, sysconfig; print(sys.base_prefix, sysconfig.get_path('purelib'), sys._base_executable)"
    base, packages, binary = subprocess.check_output([python, "-c", where], text=True, env=clean({})).split()
    for name, target in {"python": base, "packages": packages, "src": str(REPOSITORY / "src")}.items():
        (ROOM / name).unlink(missing_ok=True)
        (ROOM / name).symlink_to(target)
    shutil.copy(HERE / "train.py", ROOM / "train.py")
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"PYTHONHOME": str(ROOM / "python"), "PYTHONPATH": f"{ROOM}/src:{ROOM}/packages", **environment}
    return subprocess.Popen([binary, "-S", "train.py", workload, str(folder)], cwd=ROOM, env=clean(settings))


def clean(settings: dict[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME") if name in os.environ}
    return {**kept, "STEPSCOPE_MIN_FREE_BYTES": "0", "GLOG_v": "3", **settings}


def finish(*processes: subprocess.Popen[bytes]) -> None:
    codes = [process.wait(600) for process in processes]
    if any(codes):
        raise SystemExit(f"recording ended with {codes}")


def by_workload(name: str, python: Path = Path(sys.executable)) -> Path:
    folder = ROOM / "out" / name
    finish(run(name.replace("-", "_"), folder, python))
    return folder


def ranks(name: str) -> Path:
    folder = ROOM / "out" / name
    finish(*(run("npu_rank", folder, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2") for rank in range(2)))
    return folder / "ranks"


def mindspore(name: str) -> Path:
    return by_workload(name, MINDSPORE)


def raw_prof(name: str) -> Path:
    """A PROF folder as our writers write it; its numbers can be checked by hand."""
    sys.path[:0] = [str(REPOSITORY / "src"), str(REPOSITORY / "tests" / "support")]
    import prof_folder

    folder = ROOM / "out" / name
    folder.mkdir(parents=True)
    prof_folder.write(folder)
    return folder


def parsed(kind: str) -> Callable[[str], Path]:
    """The files that our exporter makes of the capture at level 1, without the records they came from."""

    def make(name: str) -> Path:
        sys.path[:0] = [str(REPOSITORY / "src")]
        from stepscope.analyser import OUTPUT, analyse

        folder = ROOM / "out" / name
        with tarfile.open(HERE / "npu-level1.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        (capture,) = folder.glob("*_ascend_pt")
        (result,) = analyse(str(capture), export_type=[kind])
        if not result.ok:
            raise SystemExit(str(result.error))
        for path in capture.iterdir():
            if path.is_dir() and path.name != OUTPUT:
                shutil.rmtree(path)
        for path in (capture / OUTPUT).glob("*.db") if kind == "text" else ():
            path.unlink()
        return folder

    return make


CAPTURES: dict[str, Callable[[str], Path]] = {
    "npu-level-none": by_workload,
    "npu-level0": by_workload,
    "npu-level1": by_workload,
    "npu-level2": by_workload,
    "npu-ranks": ranks,
    "cpu": by_workload,
    "kineto-cpu": by_workload,
    "mindspore-steps": mindspore,
    "mindspore-data": mindspore,
    "prof-raw": raw_prof,
    "ascend-text": parsed("text"),
    "ascend-db": parsed("db"),
}


def traces_of_this_machine(folder: Path) -> list[str]:
    """Files that name the machine, its user, or a folder of either."""
    words = {str(REPOSITORY.parent), str(Path.home()), sys.base_prefix, sys.prefix}
    words |= {f"/{getpass.getuser()}/", *([socket.gethostname()] if len(socket.gethostname()) > 3 else [])}
    found = []
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        named = [word for word in sorted(words) if word.encode() in data or word in path.name]
        found += [f"{path.relative_to(folder)}: {word}" for word in named]
    return found


def pack(folder: Path, archive: Path) -> None:
    """The same files give the same archive: no owner, no date, names in order."""

    def bare(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz", preset=9) as out:
        for path in sorted(path for path in folder.rglob("*") if not path.is_dir() and ".stepscope" not in path.parts):
            out.add(path, str(path.relative_to(folder)), filter=bare)
    archive.write_bytes(data.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CAPTURES)}; all unless given")
    names = parser.parse_args().names or list(CAPTURES)
    for name in names:
        shutil.rmtree(ROOM, ignore_errors=True)
        ROOM.mkdir()
        folder = CAPTURES[name](name)
        traces = traces_of_this_machine(folder)
        if traces:
            raise SystemExit("\n  ".join([f"{name} would tell where it was recorded:", *traces]))
        pack(folder, HERE / f"{name}.tar.xz")
        size = (HERE / f"{name}.tar.xz").stat().st_size
        print(f"{name}: {size:,} bytes")
        if size > LARGEST:
            raise SystemExit(f"{name} is larger than {LARGEST:,} bytes: make it smaller")
    shutil.rmtree(ROOM, ignore_errors=True)


if __name__ == "__main__":
    main()

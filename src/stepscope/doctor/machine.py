# SPDX-License-Identifier: Apache-2.0
"""`stepscope doctor`: whether this machine is ready, one line per question, each with what to do about it.

Versions are read from what is installed, without importing it. Only the trial starts torch, in a process of its own.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib import metadata, util
from pathlib import Path
from typing import Any, Literal

from stepscope import __version__
from stepscope.environment import INTERNAL, VARIABLES
from stepscope.errors import CaptureError

State = Literal["ok", "warn", "fail"]
Text = tuple[str, str]  # English, Chinese

NEEDED = (
    "numpy",
    "polars",
    "pyarrow",
    "orjson",
    "adbc-driver-manager",
    "adbc-driver-sqlite",
    "rich",
    "waitress",
    "werkzeug",
    "xxhash",
)
OPTIONAL = ("torch", "torch_npu", "mindspore", "tensorboard", "distributed")
TRIAL = Path(__file__).with_name("trial.py")
_TRIAL_SECONDS = 300
_LITTLE_SPACE = 1 << 30


@dataclass(frozen=True)
class Line:
    """The answer to one question."""

    name: str
    state: State
    text: Text
    fix: Text | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Cache:
    """One folder of data that can be made again."""

    name: str
    path: Path
    bytes: int


def examine(*, trial: bool = True) -> list[Line]:
    """Every line, in the order in which one thing needs the other."""
    checks: list[Callable[[], Iterator[Line]]] = [
        _python,
        _packages,
        _devices,
        _compiler,
        _libraries,
        _caches,
        _hooks,
        _variables,
        _disk,
    ]
    lines = [line for check in checks for line in check()]
    return [*lines, *_trial()] if trial else lines


def _python() -> Iterator[Line]:
    text = f"Python {platform.python_version()}, stepscope {__version__}, {platform.system()} {platform.machine()}"
    supported = sys.version_info >= (3, 10) and platform.system() == "Linux"
    fix = ("use Linux and Python 3.10 or later", "请使用 Linux 和 Python 3.10 或更高版本")
    yield Line("python", "ok" if supported else "fail", (text, text), None if supported else fix)


def _packages() -> Iterator[Line]:
    found = {name: _version(name) for name in (*NEEDED, *OPTIONAL)}
    absent = [name for name in NEEDED if found[name] is None]
    text = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    if absent:
        yield Line(
            "packages",
            "fail",
            (f"missing: {', '.join(absent)}", f"缺少：{', '.join(absent)}"),
            (f"pip install {' '.join(absent)}", f"pip install {' '.join(absent)}"),
        )
    yield Line("packages", "ok", (text, text))
    if found["torch"] is None and found["mindspore"] is None:
        yield Line(
            "framework",
            "warn",
            (
                "neither torch nor mindspore is installed: captures can be analysed, not recorded",
                "未安装 torch 或 mindspore：可分析，不能采集",
            ),
            ("pip install 'stepscope[torch]' where you train", "在训练环境中执行 pip install 'stepscope[torch]'"),
        )  # fmt: skip


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> Iterator[Line]:
    npus = sorted(Path("/dev").glob("davinci[0-9]*"))
    gpus = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/sys/class/kfd/kfd/topology/nodes").glob("[1-9]*")]
    cores = len(os.sched_getaffinity(0))
    parts = [f"{len(npus)} NPU", f"{len(gpus)} GPU", f"{cores} CPU"]
    yield Line("devices", "ok", (", ".join(parts), "、".join(parts)))
    if npus and util.find_spec("torch_npu") is None and _version("mindspore") is None:
        yield Line(
            "devices",
            "warn",
            ("there are NPUs, but torch_npu is not installed: they cannot be used", "有 NPU，但未安装 torch_npu，无法使用"),
            (
                "install torch_npu for your torch and CANN; then stepscope doctor --npu",
                "安装与 torch、CANN 匹配的 torch_npu，再执行 stepscope doctor --npu",
            ),
        )  # fmt: skip
    blocked = [str(path) for path in npus if not os.access(path, os.R_OK | os.W_OK)]
    if blocked:
        yield Line(
            "devices",
            "fail",
            (f"no permission for {blocked[0]}", f"没有访问 {blocked[0]} 的权限"),
            ("sudo usermod -aG HwHiAiUser $USER, then log in again", "执行 sudo usermod -aG HwHiAiUser $USER 后重新登录"),
        )


def _compiler() -> Iterator[Line]:
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    found = next((path for path in map(shutil.which, wanted) if path), None)
    if found:
        yield Line("compiler", "ok", (found, found))
    else:
        yield Line(
            "compiler",
            "warn",
            (
                "none: without a shipped binary, torch's own profiler records and scripts for npu stay on the CPU",
                "没有：若无预编译库，则用 torch 自带的 profiler 采集，npu 脚本在 CPU 上运行",
            ),
            ("install g++ (apt install g++, dnf install gcc-c++)", "安装 g++（apt install g++ 或 dnf install gcc-c++）"),
        )


def _libraries() -> Iterator[Line]:
    from stepscope.native.codec import Codec, describe_codec, find_codec
    from stepscope.native.library import cache_folder

    fast = isinstance(find_codec(), Codec)
    yield Line(
        "kernels",
        "ok" if fast else "warn",
        (describe_codec(), describe_codec()),
        None
        if fast
        else ("python -m stepscope.native.codec builds them in seconds", "执行 python -m stepscope.native.codec，几秒即可编译"),
    )
    for failed in sorted(cache_folder().glob("*/failed.txt")):
        reason = failed.read_text(errors="replace").strip().splitlines()
        shown = reason[-1][:300] if reason else "no reason given"
        yield Line(
            failed.parent.name.rpartition("-")[0] or failed.parent.name,
            "warn",
            (f"could not be built: {shown}", f"编译失败：{shown}"),
            (f"remove {failed.parent} to try again", f"删除 {failed.parent} 后重试"),
        )


def caches() -> list[Cache]:
    """Everything in the user's cache that can be made again."""
    from stepscope.native.library import cache_folder

    root = cache_folder().parent
    names = {"native": "libraries", "packs": "packs"}
    sizes: dict[str, int] = {}
    if root.is_dir():
        for entry in sorted(root.iterdir()):
            name = names.get(entry.name, "stores")
            sizes[name] = sizes.get(name, 0) + _size(entry)
    paths = {"libraries": root / "native", "packs": root / "packs", "stores": root}
    return [Cache(name, paths[name], size) for name, size in sizes.items()]


def clean() -> int:
    """Remove all caches; the bytes that became free. Captures and what lies beside them stay."""
    from stepscope.native.library import cache_folder

    root = cache_folder().parent
    freed = _size(root)
    try:
        shutil.rmtree(root)
    except FileNotFoundError:
        return 0
    except OSError as problem:
        raise CaptureError("the caches could not be removed", where=str(root), cause=str(problem)) from problem
    return freed


def _size(path: Path) -> int:
    if path.is_file() or path.is_symlink():
        return path.lstat().st_size
    return sum(file.lstat().st_size for file in path.rglob("*") if file.is_file() or file.is_symlink())


def _caches() -> Iterator[Line]:
    found = caches()
    parts = ", ".join(f"{cache.name} {cache.bytes / 1e6:.1f} MB" for cache in found) or "empty"
    much = sum(cache.bytes for cache in found) > 10 << 30
    fix = ("stepscope doctor --clean removes them", "执行 stepscope doctor --clean 清除")
    yield Line("caches", "warn" if much else "ok", (parts, parts), fix if much else None)


def _hooks() -> Iterator[Line]:
    """Whether torch and TensorBoard find us: their entry points exist only where the package was installed."""
    for group, package, name, lost in (
        ("torch.backends", "torch", "torch hook", ("STEPSCOPE_PROFILE and ctl do nothing", "STEPSCOPE_PROFILE 和 ctl 不起作用")),
        ("tensorboard_plugins", "tensorboard", "tensorboard tab", ("TensorBoard shows no tab", "TensorBoard 中没有页签")),
    ):
        if _version(package) is None:
            continue
        known = any(entry.name == "stepscope" for entry in metadata.entry_points(group=group))
        text = ("registered", "已注册") if known else (f"not registered: {lost[0]}", f"未注册：{lost[1]}")
        fix = ("install the package with pip instead of PYTHONPATH", "用 pip 安装本包，而不是设置 PYTHONPATH")
        yield Line(name, "ok" if known else "warn", text, None if known else fix)
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        yield Line(
            "torch hook",
            "warn",
            ("TORCH_DEVICE_BACKEND_AUTOLOAD=0 switches it off", "TORCH_DEVICE_BACKEND_AUTOLOAD=0 已将其关闭"),
            ("unset it", "取消该变量"),
        )


def _variables() -> Iterator[Line]:
    given = sorted(name for name in os.environ if name.startswith("STEPSCOPE_"))
    unknown = [name for name in given if name not in VARIABLES and name not in INTERNAL]
    for name in unknown:
        near = get_close_matches(name, VARIABLES, 1)
        fix = (f"did you mean {near[0]}?", f"是否应为 {near[0]}？") if near else ("remove it", "将其删除")
        yield Line("variables", "warn", (f"{name} is not read by anything", f"{name} 没有被读取"), fix)
    if given and not unknown:
        text = ", ".join(f"{name}={os.environ[name]}" for name in given)
        yield Line("variables", "ok", (text, text))


def _disk() -> Iterator[Line]:
    for name, folder in (("this folder", Path.cwd()), ("temporary files", Path(tempfile.gettempdir()))):
        if not os.access(folder, os.W_OK):
            yield Line(
                name,
                "warn",
                (f"{folder} is read-only: results go elsewhere only with --out", f"{folder} 只读：结果需用 --out 写到别处"),
                ("work in a folder that you may write to", "在可写的目录中工作"),
            )
            continue
        free = shutil.disk_usage(folder).free
        text = f"{folder}: {free / 1e9:.1f} GB"
        little = free < _LITTLE_SPACE
        fix = ("free some space, or set STEPSCOPE_SPOOL_DIR and TMPDIR", "释放空间，或设置 STEPSCOPE_SPOOL_DIR 和 TMPDIR")
        yield Line(name, "warn" if little else "ok", (f"{text} free", f"{text} 可用"), fix if little else None)


def _trial() -> Iterator[Line]:
    """Record two steps and read them back, as a training script would."""
    if util.find_spec("torch") is None:
        return
    with tempfile.TemporaryDirectory(prefix="stepscope-doctor-") as place:
        # From where this package was found, whatever the folder is.
        path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "STEPSCOPE_MIN_FREE_BYTES": "0"}
        environment.pop("STEPSCOPE_PROFILE", None)
        try:
            done = subprocess.run(
                [sys.executable, str(TRIAL), place],
                capture_output=True, text=True, errors="replace", timeout=_TRIAL_SECONDS, env=environment, check=False,
            )  # fmt: skip
            said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        except subprocess.SubprocessError as problem:
            said = [str(problem)]
        yield _recorded(Path(place), said[0])


def _recorded(folder: Path, said: str) -> Line:
    from stepscope.capture import open_capture

    try:
        facts, steps = (lambda capture: (capture.facts, capture.steps.height))(open_capture(folder))
    except CaptureError as problem:
        fix = ("report it with these lines", "请附上以上内容报告问题")
        return Line("trial", "fail", (f"no capture: {said}; {problem.what}", f"没有采集到数据：{said}；{problem.what}"), fix)
    collector = facts.profiler_info.get("collector") or {}
    tier = str(collector.get("tier", "ascend"))
    text = (f"{steps} steps recorded and read back, collector {tier}", f"已采集并读回 {steps} 个 step，采集方式 {tier}")
    if tier != "native" and "STEPSCOPE_COLLECTOR" not in os.environ and tier != "ascend":
        why = str(collector.get("reason") or "the native one is not available")
        return Line(
            "trial",
            "warn",
            (f"{text[0]}: {why}", f"{text[1]}：{why}"),
            (
                "python -m stepscope.collect says why the better one could not be built",
                "执行 python -m stepscope.collect 查看无法编译的原因",
            ),
        )
    return Line("trial", "ok" if steps == 2 else "fail", text, None if steps == 2 else ("report it", "请报告问题"))

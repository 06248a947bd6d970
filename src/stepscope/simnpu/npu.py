# SPDX-License-Identifier: Apache-2.0
"""`torch.npu` of the simulated device: the functions that scripts call, on torch's own accelerator API.

Imported only by `device.load_library`, once torch and the library are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

import torch

from stepscope.simnpu import amp as amp

_ops = torch.ops.stepscope_npu

DeviceLike = Any  # number, text, torch.device or None for the current one


def _number(device: DeviceLike = None) -> int:
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    wanted = torch.device(device)
    if wanted.type != "npu":
        raise ValueError(f"Expected a npu device, but got: {device}")
    return current_device() if wanted.index is None else int(wanted.index)


# devices ---------------------------------------------------------------------------------------------------------


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return True


def init() -> None:
    """Nothing to do: threads start with the first task."""


def _lazy_init() -> None:
    init()


def _is_in_bad_fork() -> bool:
    return bool(_ops.in_forked_child())


def device_count() -> int:
    return int(_ops.device_count())


def current_device() -> int:
    return int(_ops.current_device())


def set_device(device: DeviceLike) -> None:
    _ops.set_device(_number(device))


def synchronize(device: DeviceLike = None) -> None:
    """Wait for everything queued on the device; raises what failed there."""
    _ops.synchronize(_number(device))


def _exchange_device(device: int) -> int:
    before = current_device()
    if device >= 0:
        _ops.set_device(device)
    return before


_maybe_exchange_device = _exchange_device


class device:
    """The current device inside a `with`."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None else _number(device)
        self.prev_idx = -1

    def __enter__(self) -> device:
        self.prev_idx = _exchange_device(self.idx)
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        _exchange_device(self.prev_idx)


class device_of(device):
    """The device of a tensor inside a `with`; nothing happens for tensors elsewhere."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device if tensor.device.type == "npu" else None)


def get_device_name(device: DeviceLike = None) -> str:
    return f"Simulated NPU {_number(device)}"


class _DeviceProperties:
    """What scripts print about a device."""

    def __init__(self, name: str, total_memory: int) -> None:
        self.name = name
        self.total_memory = total_memory

    def __repr__(self) -> str:
        return f"_NPUDeviceProperties(name='{self.name}', total_memory={self.total_memory // 2**20}MB)"


def get_device_properties(device: DeviceLike = None) -> _DeviceProperties:
    return _DeviceProperties(get_device_name(device), int(_ops.memory_capacity()))


def get_device_capability(device: DeviceLike = None) -> None:
    """As on hardware: NPUs have no such number."""


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    return _number(device) != _number(peer_device)


def set_compile_mode(jit_compile: bool = False) -> None:
    """Accepted as on hardware; kernels are already compiled."""


def set_option(option: dict[str, str]) -> None:
    """Accepted as on hardware; has no effect."""


# streams and events ----------------------------------------------------------------------------------------------


class Stream(torch.Stream):  # type: ignore[misc]
    """A queue of tasks that runs beside other streams."""

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **parts: int) -> Stream:
        if parts:
            created: Stream = super().__new__(cls, priority=priority, **parts)
        else:
            created = super().__new__(cls, torch.device("npu", _number(device)), priority=priority)
        return created

    @property
    def npu_stream(self) -> int:
        """Handle of the stream."""
        return int(self.native_handle)

    def set_data_preprocess_stream(self, is_data_preprocess_stream: bool = False) -> None:
        """Accepted as on hardware; has no effect."""


def _as_stream(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


class _AnyEvent(type):
    """torch accepts no subclass of its event where two are compared, so ours are torch's own; `isinstance` still works."""

    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, torch.Event)


class Event(metaclass=_AnyEvent):
    """A point in a stream that others wait for."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:
        created: Event = torch.Event("npu", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)
        return created


def current_stream(device: DeviceLike = None) -> Stream:
    return _as_stream(torch.accelerator.current_stream(_number(device)))


def default_stream(device: DeviceLike = None) -> Stream:
    kind = torch.accelerator.current_stream(_number(device)).device_type
    return Stream(stream_id=0, device_index=_number(device), device_type=kind)


def set_stream(stream: torch.Stream | None) -> None:
    """Make it the current stream of its device, and its device the current one."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """The current stream inside a `with`."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._device = -1
        self._before: torch.Stream | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self._device = current_device()
            self._before = torch.accelerator.current_stream(self.stream.device_index)
            set_stream(self.stream)

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        if self._before is not None:
            set_stream(self._before)
            _ops.set_device(self._device)


def stream(stream: torch.Stream | None) -> StreamContext:
    return StreamContext(stream)


# memory ----------------------------------------------------------------------------------------------------------


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    return dict(torch.accelerator.memory_stats(_number(device)))


def memory_allocated(device: DeviceLike = None) -> int:
    return int(torch.accelerator.memory_allocated(_number(device)))


def max_memory_allocated(device: DeviceLike = None) -> int:
    return int(torch.accelerator.max_memory_allocated(_number(device)))


def memory_reserved(device: DeviceLike = None) -> int:
    return int(torch.accelerator.memory_reserved(_number(device)))


def max_memory_reserved(device: DeviceLike = None) -> int:
    return int(torch.accelerator.max_memory_reserved(_number(device)))


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    torch.accelerator.reset_peak_memory_stats(_number(device))


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    torch.accelerator.reset_accumulated_memory_stats(_number(device))


def empty_cache() -> None:
    torch.accelerator.empty_cache()


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free and total bytes."""
    total = int(_ops.memory_capacity())
    return total - memory_reserved(device), total


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    stats = memory_stats(device)
    rows = [f"{name:<24}{stats.get(f'{name}.all.current', 0):>16}{stats.get(f'{name}.all.peak', 0):>16}" for name in _SUMMARY]
    return "\n".join([f"{'':<24}{'current':>16}{'peak':>16}", *rows])


_SUMMARY = ("allocated_bytes", "active_bytes", "reserved_bytes", "requested_bytes", "allocation", "segment")


# random numbers --------------------------------------------------------------------------------------------------


def _generator(device: DeviceLike = None) -> torch.Generator:
    return _ops.default_generator(_number(device))


def manual_seed(seed: int) -> None:
    _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    for number in range(device_count()):
        _generator(number).manual_seed(int(seed))


def seed() -> None:
    _generator().seed()


def seed_all() -> None:
    _generator().seed()
    manual_seed_all(initial_seed())


def initial_seed() -> int:
    return int(_generator().initial_seed())


def get_rng_state(device: DeviceLike = "npu") -> torch.Tensor:
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "npu") -> None:
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(number) for number in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for number, state in enumerate(new_states):
        set_rng_state(state, number)


# mixed precision -------------------------------------------------------------------------------------------------


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16, torch.float32]


def is_bf16_supported() -> bool:
    return True

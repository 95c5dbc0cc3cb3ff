"""The test's side of the mock driver, inside the process that runs on it: what was launched, and what shall go wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import attrs

from tests.kernels.mock_driver.cubin_parameters import parameter_sizes


@attrs.frozen
class Launch:
    """A launch that the driver accepted; `arguments` as the cubin's parameters take them: 8 bytes unsigned, 4 bytes signed."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    shared_limit: int
    stream: int
    device: int
    arguments: tuple[int, ...]
    parameter_sizes: tuple[int, ...]


class _LaunchRecord(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("shared_limit", ctypes.c_int),
        ("stream", ctypes.c_uint64),
        ("device", ctypes.c_int),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("code", ctypes.c_void_p),
        ("code_bytes", ctypes.c_uint64),
    )


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.POINTER(_LaunchRecord))


class MockDriver:
    """The loaded stand-in. `execute` is called with each launch, if it is set; what it raises is kept in `errors`."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        if not hasattr(self._library, "mock_reset"):
            raise RuntimeError("libcuda.so.1 is not the mock driver: this process was not started with its environment")
        self._library.mock_create_stream.restype = ctypes.c_uint64
        self._library.mock_set_capturing.argtypes = (ctypes.c_uint64, ctypes.c_int)
        self._library.mock_calls.restype = ctypes.c_long
        self._library.cuCtxSetCurrent.argtypes = (ctypes.c_void_p,)
        self._callback = _CALLBACK(self._on_launch)
        self.reset()

    def reset(self) -> None:
        """Forget launches, faults and counts, and make no context current; devices stay, which cuda.core remembers too."""
        self.launches: list[Launch] = []
        self.errors: list[BaseException] = []
        self.execute: Callable[[Launch], None] | None = None
        self._library.mock_reset()
        self._library.mock_set_on_launch(self._callback)

    def record_nothing(self) -> None:
        """Take launches without a look at them, for a measurement."""
        self._library.mock_set_on_launch(None)

    def set_devices(self, *compute_capabilities: int) -> None:
        """Have one device for each compute capability, such as 90."""
        for device, sm in enumerate(compute_capabilities):
            self._library.mock_set_compute_capability(device, sm)
        self._library.mock_set_devices(len(compute_capabilities))

    def inject(self, function: str, result: int, times: int = 1) -> None:
        """Have the next calls of a driver function return an error."""
        self._library.mock_inject(function.encode(), result, times)

    def create_stream(self, device: int) -> int:
        """Return the handle of a new stream of a device."""
        return int(self._library.mock_create_stream(device))

    def set_capturing(self, stream: int, capturing: bool) -> None:
        """Have a stream record into a graph, or no longer."""
        self._library.mock_set_capturing(stream, capturing)

    def calls(self, function: str) -> int:
        """Return how often one of the counted functions was called."""
        return int(self._library.mock_calls(function.encode()))

    def make_current(self, device: int) -> None:
        """Make the primary context of a device current for this thread, as torch's device guard does."""
        context = ctypes.c_void_p()
        assert self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
        self._library.cuCtxSetCurrent(context)

    def make_none_current(self) -> None:
        """Leave this thread without a context, as a new thread is."""
        self._library.cuCtxSetCurrent(None)

    def current_device(self) -> int:
        """Return the device of this thread's context, or -1."""
        device = ctypes.c_int(-1)
        self._library.cuCtxGetDevice(ctypes.byref(device))
        return device.value

    def _on_launch(self, record: Any) -> None:
        try:
            launch = _read(record.contents)
            self.launches.append(launch)
            if self.execute is not None:
                self.execute(launch)
        except BaseException as error:  # nothing may be raised through C
            self.errors.append(error)


def _read(record: _LaunchRecord) -> Launch:
    name = record.kernel.decode()
    sizes = _sizes(ctypes.string_at(record.code, record.code_bytes), name)
    of_size = {8: ctypes.c_uint64, 4: ctypes.c_int32}
    arguments = tuple(of_size[size].from_address(record.arguments[index]).value for index, size in enumerate(sizes))
    return Launch(
        kernel=name,
        grid=tuple(record.grid),
        block=tuple(record.block),
        shared_bytes=record.shared_bytes,
        shared_limit=record.shared_limit,
        stream=record.stream,
        device=record.device,
        arguments=arguments,
        parameter_sizes=sizes,
    )


@lru_cache(maxsize=64)
def _sizes(cubin: bytes, kernel: str) -> tuple[int, ...]:
    return parameter_sizes(cubin, kernel)

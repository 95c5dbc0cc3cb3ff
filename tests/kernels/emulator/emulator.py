"""The product's kernels on the CPU: their own source behind a checked set of primitives, built with g++.

What it shows: results for a schedule of threads, and every access out of bounds, misaligned or racing. What it does not: the
memory order of a device, and the inline PTX of `primitives.cuh`.
"""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import attrs
import numpy as np
from tensorhub_cuda.catalog import KERNELS, Kernel

FOLDER = Path(__file__).parent
SCHEDULES = ("forward", "reverse", "random")

#: Replaced by shim.h; the only file of a kernel that the emulator does not compile.
_REPLACED = "primitives.cuh"

Argument = np.ndarray | int | None


class EmulatorError(Exception):
    """A kernel did what it must not do, or could not be launched. The message says what and where."""


@attrs.frozen
class Options:
    """How a launch runs. `fraction_bits` and `products` are of hardware numerics, which see `numbers.h`.

    `keep_f32`: y is F32 where the kernel would round it to BF16, so that an error before the rounding can be measured.
    """

    schedule: Literal["forward", "reverse", "random"] = "forward"
    lazy_copies: bool = False
    numerics: Literal["exact", "hardware"] = "exact"
    fraction_bits: int = 25
    products: int = 16
    keep_f32: bool = False


@attrs.frozen
class Statistics:
    """What a launch did."""

    matrix_instructions: int
    barriers: int
    switches: int


def product_sources(kernels: Sequence[Kernel] = KERNELS) -> dict[str, str]:
    """Return the text of each file of the kernels, in an order in which one translation unit may hold them all."""
    folder = files("tensorhub_cuda") / "kernels"
    names = dict.fromkeys(name for kernel in kernels for name in kernel.sources if name != _REPLACED)
    headers_first = sorted(names, key=lambda name: name.endswith(".cu"))
    return {name: (folder / name).read_text(encoding="utf-8") for name in headers_first}


def build(folder: Path, sources: Mapping[str, str], *, optimize: str = "-O2") -> Path:
    """Build the emulator of these sources (file name to text) in `folder` and return the library.

    A machine without g++, or a source that it does not compile, is a RuntimeError: a test that did not run did not pass.
    """
    return _build(folder, {"": sources}, optimize)


def build_variants(folder: Path, variants: Mapping[str, Mapping[str, str]]) -> Path:
    """Build several versions of the same sources into one library: kernels are named `variant::kernel`."""
    return _build(folder, variants, "-O0")


def _build(folder: Path, variants: Mapping[str, Mapping[str, str]], optimize: str) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        raise RuntimeError("g++ is not installed: the tests of the kernels build them for the CPU with it. Install g++.")
    unit, kernels = [], []
    for variant, sources in variants.items():
        text = "".join(f'#line 1 "{name}"\n{each}\n' for name, each in sources.items())
        unit.append(f"namespace {variant} {{\n{text}}}\n" if variant else text)
        prefix = f"{variant}::" if variant else ""
        kernels += [f"EMULATED({prefix}{name}, {threads})" for each in sources.values() for threads, name in _KERNEL.findall(each)]
    (folder / "kernels_under_test.h").write_text(f"{''.join(unit)}\n#define EMULATED_KERNELS {' '.join(kernels)}\n", encoding="utf-8")
    library = folder / "emulator.so"
    # Each source operation is rounded by itself, as the kernels' own intrinsics say: no fused ones but those they ask for.
    options = ["-std=c++17", optimize, "-march=native", "-ffp-contract=off", "-fPIC", "-shared", "-Wno-unknown-pragmas"]
    command = [compiler, *options, f"-I{folder}", f"-I{FOLDER}", str(FOLDER / "host.cpp"), "-o", str(library)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"g++ did not build the emulator:\n{result.stderr[:4000]}")
    return library


_KERNEL = re.compile(r"^KERNEL\((\d+)\) (\w+)\(", re.MULTILINE)


class Emulator:
    """A built library. Launches run one at a time: its state is the library's."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.emulator_error.restype = ctypes.c_char_p
        self.library.emulator_parameter_kinds.restype = ctypes.c_char_p

    def parameter_kinds(self, name: str) -> str:
        """Return a letter for each parameter of a kernel: r (pointer, only read), w (pointer), l (64-bit), i (32-bit)."""
        kinds = self.library.emulator_parameter_kinds(name.encode())
        if kinds is None:
            raise KeyError(name)
        return str(kinds.decode())

    def launch(
        self,
        kernel: Kernel,
        grid: tuple[int, int],
        args: Sequence[Argument],
        *,
        seed: int = 0,
        options: Options = Options(),
        blocks: Sequence[tuple[int, int]] = (),
    ) -> Statistics:
        """Run a kernel's grid, or some `blocks` of it, on numpy arrays; raises EmulatorError.

        An array has one dimension, or two of which the last one is contiguous: rows of a strided array are bounds of their own.
        What the kernel takes as a pointer to constants may not be written.
        """
        kinds = self.parameter_kinds(kernel.name)
        if len(kinds) != len(args):
            raise EmulatorError(f"{kernel.name} has {len(kinds)} parameters ({kinds}), not {len(args)}")
        bounds = sorted(bound for kind, arg in zip(kinds, args, strict=True) for bound in _bounds(kind, arg))
        values = [_value(kind, arg) for kind, arg in zip(kinds, args, strict=True)]
        begin, end, writable = (list(column) for column in zip(*bounds, strict=True)) if bounds else ([], [], [])
        self.library.emulator_set_ranges(
            len(bounds), _array(ctypes.c_uint64, begin), _array(ctypes.c_uint64, end), _array(ctypes.c_int, writable)
        )
        self.library.emulator_select_blocks(len(blocks), _array(ctypes.c_uint32, [each for pair in blocks for each in pair]))
        return self.launch_addresses(kernel, grid, values, seed=seed, options=options)

    def launch_addresses(
        self,
        kernel: Kernel,
        grid: tuple[int, int],
        values: Sequence[int],
        *,
        seed: int = 0,
        options: Options = Options(),
    ) -> Statistics:
        """Run a kernel on addresses and integers, each widened to 64 bits; raises EmulatorError."""
        self.library.emulator_set_options(
            SCHEDULES.index(options.schedule),
            options.lazy_copies,
            options.numerics == "hardware",
            options.fraction_bits,
            options.products,
            options.keep_f32,
        )
        failed = self.library.emulator_launch(
            kernel.name.encode(), *grid, kernel.threads, kernel.shared_bytes, _array(ctypes.c_uint64, values), seed
        )
        if failed:
            raise EmulatorError(self.library.emulator_error().decode())
        statistics = (ctypes.c_uint64 * 3)()
        self.library.emulator_statistics(statistics)
        return Statistics(*statistics)

    def check_bounds(self, on: bool) -> None:
        """Switch bounds checking of global memory; off for launches of addresses whose arrays nobody knows."""
        self.library.emulator_check_bounds(int(on))


@functools.cache
def product_emulator() -> Emulator:
    """Return the emulator of all kernels of the product, built once a process."""
    with tempfile.TemporaryDirectory(prefix="tensorhub-emulator-") as folder:
        return Emulator(build(Path(folder), product_sources()))  # a loaded library needs its file no more


def grid_of(kernel: Kernel, m: int, n: int) -> tuple[int, int]:
    """Return the grid of a kernel for y [m, n], or for codes [m, n]."""
    return -(-n // kernel.tile_n), -(-m // kernel.tile_m)


def _bounds(kind: str, arg: Argument) -> Iterator[tuple[int, int, int]]:
    if not isinstance(arg, np.ndarray) or arg.size == 0:
        return
    address, row_bytes = arg.ctypes.data, arg.shape[-1] * arg.itemsize
    if arg.strides[-1] != arg.itemsize and arg.shape[-1] > 1:
        raise EmulatorError("an array whose last dimension is not contiguous")
    if arg.flags.c_contiguous:
        yield address, address + arg.nbytes, int(kind == "w")
        return
    for row in range(arg.shape[0]):
        yield address + row * arg.strides[0], address + row * arg.strides[0] + row_bytes, int(kind == "w")


def _value(kind: str, arg: Argument) -> int:
    if isinstance(arg, np.ndarray) != (kind in "rw" and arg is not None):
        raise EmulatorError(f"an argument of kind {kind} is {type(arg).__name__}")
    if isinstance(arg, np.ndarray):
        return int(arg.ctypes.data)
    return 0 if arg is None else arg & (2**64 - 1)


def _array(kind: type[Any], values: Sequence[int]) -> Any:
    """Return a C array of one of ctypes' integers."""
    return (kind * len(values))(*values)

"""Makes a receipt on the mock driver: every launch is run by the emulator, from the addresses that the driver was given.

    python tests/kernels/support/receipt_on_emulator.py LIBRARY ARGUMENT...

`LIBRARY` is an emulator that holds the product's kernels and the probes, the arguments are those of gpu_receipt.py. Started with the mock
driver's environment; says "emulator: ..." for every fault that the emulator found.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tensorhub_cuda.catalog import Kernel

from tests.kernels import gpu_receipt
from tests.kernels.emulator.emulator import Emulator, build, product_sources
from tests.kernels.mock_driver.driver import Launch, MockDriver
from tests.kernels.receipt import primitive_checks

#: Launches pass 64 bits a parameter.
_ALL_BITS = 2**64 - 1


def build_with_probes(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """Build the emulator of the product's kernels and the probes; a change is a file, words in it and what stands there instead."""
    sources = {**product_sources(), primitive_checks.PROBES.name: primitive_checks.PROBES.read_text(encoding="utf-8")}
    for file, words, others in changes:
        assert words in sources[file], f"{file} holds no {words!r}"
        sources[file] = sources[file].replace(words, others)
    return build(folder, sources)


def main(library: str, *arguments: str) -> int:
    """Make the receipt and return what gpu_receipt.py exits with."""
    emulator = Emulator(Path(library))
    emulator.check_bounds(False)
    driver = MockDriver()
    driver.set_devices(90)
    driver.make_current(0)

    def execute(launch: Launch) -> None:
        described = Kernel(launch.kernel, "w8a16", (), launch.block[0], 1, 1, launch.shared_bytes, 80, 255, False)
        emulator.launch_addresses(described, launch.grid[:2], [value & _ALL_BITS for value in launch.arguments])

    driver.execute = execute
    code = gpu_receipt.main([*arguments, "--host-memory"])
    for error in driver.errors:
        print(f"emulator: {error}")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

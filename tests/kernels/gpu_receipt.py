"""Proves the kernels on this machine's GPU in one run, and writes a receipt: `make gpu-test`.

    PYTHONPATH=.:decoders:cuda python tests/kernels/gpu_receipt.py [--quick] [--output FOLDER] [--only SECTION]

Needs torch, numpy, attrs, cuda-core and NVRTC, and no network. It verifies the oracle's files, shows that its judge refuses known-bad
answers, then judges primitives, kernels and the operator, measures, and runs compute-sanitizer where there is one. Exits with 0 if
everything that must run ran and passed, 1 if a check failed, 3 if no GPU answered, and 4 if something that must run did not, as where
Python lacks one of the first three packages: then there is no receipt.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

#: Packages without which no check can be made; what else is missing, the receipt says.
NEEDED = ("attrs", "numpy", "torch")

#: As INCOMPLETE of receipt/checks.py, which cannot be imported without these packages.
NOT_STARTED = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the receipt and return what the process exits with."""
    missing = [name for name in NEEDED if not _is_installed(name)]
    if missing:
        print(f"not run: {sys.executable} has no {' and no '.join(missing)}. Run {sys.executable} -m pip install {' '.join(missing)}")
        return NOT_STARTED
    from tests.kernels.receipt.sections import make_receipt

    return make_receipt(arguments)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # a module whose import was blocked
        return False


if __name__ == "__main__":
    sys.exit(main())

"""What the operating system refuses while a conversion writes: a full disk above all, which is nobody's fault."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Final

from tensorhub_contracts.errors import OutputError
from tensorhub_decoders.converting.plan import ConversionPlan

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def output_error(error: OSError, plan: ConversionPlan, destination: Path) -> OutputError:
    """Put what the operating system said into words: for a full disk, how much is needed and that a rerun goes on."""
    partial = destination.with_name(f"{destination.name}.partial")
    words = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    stays = f" What is finished stays in {partial}, and the same command goes on from there." if partial.is_dir() else ""
    if error.errno not in _FULL:
        return OutputError(f"{words}.{stays}")
    needed = sum(file.size for file in plan.files.values())
    written = sum(path.stat().st_size for path in partial.rglob("*.safetensors"))
    free = shutil.disk_usage(next(folder for folder in partial.absolute().parents if folder.is_dir())).free
    return OutputError(
        f"{words}. The shards take {needed:,} bytes; {written:,} are written, {needed - written:,} more are needed, and {free:,} are free."
        f" Make room and run the same command again.{stays}"
    )

"""Whether any plugin beside the shipped ones can be installed: a look that costs a millisecond and imports nothing.

`tensorhub inspect` answers in the time of a few empty interpreters, and the scan of all metadata takes one by itself.
The look says no only where it is sure.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from typing import Final

#: The group of entry points that plugins are declared in.
GROUP: Final = "tensorhub.decoders"

#: The environment variable that allows and blocks plugins; `plugin_selection` reads it.
VARIABLE: Final = "TENSOR_CONTRACTS_PLUGINS"

#: The name that it had: others own variables that begin so, and some of them stop at one that they do not know.
_OLD_VARIABLE: Final = "TENSORHUB_PLUGINS"


@functools.cache
def warn_of_old_name() -> None:
    """Say once on standard error that the variable is set by the name that it had, which nothing reads any more."""
    if _OLD_VARIABLE in os.environ:
        warnings.warn(f"{_OLD_VARIABLE} is set, and not read: the variable is {VARIABLE}", stacklevel=2)


@functools.cache
def only_shipped_plugins() -> bool:
    """Return whether it is certain that this environment holds no plugin but the shipped ones, and blocks none.

    Looked up once a process, as plugins are: whoever inspects a thousand checkpoints lists `sys.path` once.
    """
    warn_of_old_name()
    if os.environ.get(VARIABLE, "").strip():
        return False
    if any(hasattr(finder, "find_distributions") and getattr(finder, "__name__", "") != "PathFinder" for finder in sys.meta_path):
        return False
    ours = 0
    for folder in dict.fromkeys(entry or os.curdir for entry in sys.path):
        if folder.endswith(".egg"):
            return False  # its metadata has no name in front, and is read in a way of its own
        try:
            names = os.listdir(folder)
        except NotADirectoryError:
            return False  # a zip file, which holds metadata in a way of its own
        except OSError:
            continue  # nothing can be imported from there either
        for name in names:
            if name.lower().endswith((".dist-info", ".egg-info")) and _declares(os.path.join(folder, name)):
                ours += name.startswith("tensorhub_contracts-")
                if not name.startswith("tensorhub_contracts-") or ours > 1:
                    return False
    return True


def _declares(folder: str) -> bool:
    """Whether metadata names the group of entry points; of what cannot be read no plugin is loaded either."""
    try:
        with open(os.path.join(folder, "entry_points.txt"), "rb") as file:  # noqa: PTH123  # a Path for each distribution costs more
            return GROUP.encode() in file.read()
    except OSError:
        return False

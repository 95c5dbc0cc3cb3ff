"""Runs Python in a process of its own, in the environment of the tests, to see what is imported and what is derived."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Final

#: What a module that declares decoders must not import: whatever computes with weights.
FORBIDDEN: Final = ("torch", "cuda", "triton", "jax", "tensorflow", "transformers", "cupy")

_WITHOUT = """
import sys
class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {forbidden!r}:
            raise ImportError(f"{{name}} was imported by a module that only declares")
sys.meta_path.insert(0, Forbid())
"""

_PLUGINS = """
import json
from tensorhub_contracts import installed_plugins
states = [[plugin.name, plugin.state, plugin.reason, [[c.name, c.declaration.contract] for c in plugin.decoders]]
          for plugin in installed_plugins().plugins]
print(json.dumps(states))
"""

_LANES = """
import json, sys
if {reverse}:
    sys.path[:] = sys.path[::-1]
from tensorhub_contracts import derive_execution_lanes
from tensorhub_contracts.lanes.image_lanes import canonical_bytes
from tensorhub_contracts.documents import to_builtins
lanes = derive_execution_lanes()
print(json.dumps([canonical_bytes(lanes).decode(), to_builtins(lanes)]))
"""


def plugins_without_torch() -> list[tuple[str, str, str, list[tuple[str, str]]]]:
    """Return name, state, reason and decoders of each plugin where torch and its like cannot be imported."""
    return [
        (name, state, reason, [tuple(registered) for registered in decoders])
        for name, state, reason, decoders in _run(_WITHOUT.format(forbidden=set(FORBIDDEN)) + _PLUGINS, "0")
    ]


def derived_lanes(*, reverse: bool, hash_seed: str) -> tuple[str, dict[str, Any]]:
    """Return canonical bytes and record of the lanes, with `sys.path` as it is or reversed and hashes seeded as asked."""
    canonical, record = _run(_LANES.format(reverse=reverse), hash_seed)
    return canonical, record


def _run(script: str, hash_seed: str) -> Any:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise AssertionError(f"a Python of its own failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout)

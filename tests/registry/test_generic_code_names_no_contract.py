"""Generic code knows contracts by their facts: no handle stands in it, in code or in prose, but where one is an example."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorhub_contracts import parse_lane
from tensorhub_contracts.registry.registry import load_registry

ROOT = Path(__file__).parents[2]
DECODERS = ROOT / "decoders" / "tensorhub_decoders"

#: A decoder is of its contracts, and names them.
OWN = {DECODERS / f"{name}.py" for name in ("cozy_fp8_rowwise", "cozy_fp8_storage", "hf_fp8_blockwise", "plain")}

#: Where a handle is an example for a reader, and decides nothing: the file, and how often.
EXAMPLES = {
    "decoders/tensorhub_decoders/commands/produce.py": 1,  # --help says which contract takes stacks of experts
}

_HANDLES = re.compile("|".join(re.escape(handle.partition("@")[0]) + r"(?:@\d+)?\b" for handle in load_registry().contracts))


def generic_modules() -> list[Path]:
    """Every module of the framework and of the decoders that is not a decoder itself."""
    modules = [*(ROOT / "tensorhub_contracts").rglob("*.py"), *DECODERS.rglob("*.py")]
    return sorted(set(modules) - OWN)


def named_in(text: str) -> Iterator[str]:
    """Yield the handles in a text, with or without their major; the names of formulas are no handles."""
    yield from (match.group() for match in _HANDLES.finditer(text))


@pytest.mark.parametrize("path", generic_modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_handle_stands_in_generic_code(path: Path) -> None:
    found = list(named_in(path.read_text("utf-8")))
    assert len(found) == EXAMPLES.get(str(path.relative_to(ROOT)), 0), found


def test_the_search_finds_handles_and_nothing_else() -> None:
    assert list(named_in("if contract.handle == 'hf.fp8-blockwise@1' or name.startswith('plain.bf16')")) == [
        "hf.fp8-blockwise@1",
        "plain.bf16",
    ]
    assert list(named_in("hf.fp8_blockwise.dequant@1, explain.f32x, fp8-w8a16")) == []
    assert str(parse_lane("fp8-w8a16"))
    assert all(path.is_file() for path in OWN)
    assert {path for path in OWN if list(named_in(path.read_text("utf-8")))} == OWN
